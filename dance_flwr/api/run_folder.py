"""The folder of a run of `federate`: what may be replaced there, and what a failure leaves."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dance_flwr.api.prediction.bundle_files import FACTS
from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.errors import UserError
from dance_flwr.runs.resume import holds_run

BUNDLE, DATA = "bundle", "data"


def check_run_folder(config: RunConfig) -> None:
    """Check that `out` is a new or empty folder, or one of a run that `overwrite` replaces."""
    folder = Path(config.out)
    content = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not content:
        return
    if not holds_run(folder):
        raise UserError(
            f"{folder}: expected a new or empty folder, found {content[0]!r} and no run; choose "
            "another `out`"
        )
    if not config.overwrite:
        raise UserError(
            f"{folder}: expected a new or empty folder, found a run without {RESULT}; choose "
            "another `out`, or replace the run with the key `overwrite`"
        )
    if (folder / BUNDLE).exists() and not (folder / BUNDLE / FACTS).is_file():
        raise UserError(
            f"{folder / BUNDLE}: expected the bundle of the run, found another folder; move it "
            "elsewhere"
        )


def forget_bundle(folder: Path) -> None:
    """Delete the bundle of a run that is replaced."""
    if (folder / BUNDLE / FACTS).is_file():
        shutil.rmtree(folder / BUNDLE)


@contextmanager
def stored(graph: TextGraph, source: Path) -> Iterator[None]:
    """Write a graph to `source`, in the folder of a run; an error in the block undoes it."""
    # Only what is created here is removed after an error.
    new = [path for path in (source, *source.parents[:2]) if not path.exists()]
    try:
        write_folder(graph, source)
        yield
    # Also on Ctrl-C.
    except BaseException:
        if source in new:
            shutil.rmtree(source, ignore_errors=True)
        for path in new:
            with suppress(OSError):
                path.rmdir()  # if it is empty
        raise
