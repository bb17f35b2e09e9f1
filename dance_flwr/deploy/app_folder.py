"""The folder of the Flower app that is submitted, with every key declared."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import CODE, PROJECT
from dance_flwr.config.text import toml_block
from dance_flwr.errors import UserError

PYPROJECT, _PACKAGE = "pyproject.toml", "dance_flwr"
# From the first table of keys to the next table that is none, or the end.
_BLOCK = re.compile(
    r"^\[tool\.flwr\.app\.config\].*?(?=^\[(?!tool\.flwr\.app\.config)|\Z)", re.M | re.S
)


def app_dir() -> Path:
    """Return the folder of the Flower app: the one with our pyproject.toml."""
    path = PROJECT / PYPROJECT
    if path.is_file() and _read(path)["project"]["name"] == "dance-flwr":
        return PROJECT
    raise UserError(
        f"expected the app's {PYPROJECT} in {PROJECT}, found none; install dance-flwr again, from "
        "a wheel or with `pip install -e .`"
    )


def submitted_app(scratch: Path) -> Path:
    """Copy the app's files into a folder below `scratch`; return that folder.

    Flower visits every file of the folder that it is given, which takes seconds where an
    environment lies in a checkout, and refuses keys that pyproject.toml does not declare. The copy
    holds the app alone and declares the keys of plug-ins, too.
    """
    copy = scratch / "app"
    shutil.rmtree(copy, ignore_errors=True)  # an earlier release may have had other files
    for name, file in app_files().items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    text = (copy / PYPROJECT).read_text(encoding="utf-8")
    # Flower refuses keys that are not declared; those of plug-ins are known here only.
    declared = _BLOCK.sub(lambda _: toml_block() + "\n\n", text)
    (copy / PYPROJECT).write_text(declared, encoding="utf-8")
    return copy


def app_files() -> dict[str, Path]:
    """Return the installed files that Flower bundles: path in the bundle -> file."""
    app = app_dir()
    files = {PYPROJECT: app / PYPROJECT}
    # By the patterns of the project itself.
    for pattern in _read(app / PYPROJECT)["tool"]["flwr"]["app"]["fab-include"]:
        base = CODE if pattern.startswith(f"{_PACKAGE}/") else app
        for file in base.glob(pattern):
            if app != CODE and base == CODE and app in file.parents:
                continue  # the app's own files, inside the package of a wheel
            files[file.relative_to(base).as_posix()] = file
    return files


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
