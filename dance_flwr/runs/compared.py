"""The runs that a run was compared with, in a file of its folder, so that its page keeps them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from dance_flwr.config.paths import COMPARED
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError


def compared_with(folder: Path) -> list[Path]:
    """Return the folders of the runs that this one was compared with; they may be gone."""
    path = folder / COMPARED
    if not path.is_file():
        return []
    try:
        names = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}: expected a list of folders, found {error}; remove the file and compare again"
        ) from None
    return [Path(os.path.normpath(folder.resolve() / name)) for name in names]


def remember_compared(folder: Path, others: Sequence[Path]) -> None:
    """Store with which runs this one was compared."""
    # Relative to the run: folders that lie beside it are found where they are moved together.
    names = [os.path.relpath(other, folder.resolve()) for other in others]
    if others != compared_with(folder):
        write_json(folder / COMPARED, names)
