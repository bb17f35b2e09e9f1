"""Another package with plug-ins, installed in a folder like site-packages."""

import os
import shutil

from support.project import PROJECT

OUTSIDE = PROJECT / "tests" / "support" / "outside"
SMALL = [f"--set={pair}" for pair in ("rounds=2", "clients=3", "hidden-dim=8", "max-chunks=2")]


def install(folder, entry_points, *files):
    """Install a package of these files with these entry points; return the folder."""
    for file in files:
        shutil.copy(file, folder)
    info = folder / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder


def with_packages(*folders):
    """The environment of a process that finds these packages and the checkout."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*folders, PROJECT)))}
