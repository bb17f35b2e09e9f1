"""Check the place of an output before the work that it costs."""

import os
from pathlib import Path

from dance_flwr.errors import UserError, in_the_way


def check_folder(path: Path, option: str) -> None:
    """Check, before any work, that a folder is at `path` or can be created there."""
    if file := in_the_way(path):
        raise UserError(f"{file}: expected a folder, found a file; choose another {option}")


def check_out(path: Path, option: str = "--out") -> None:
    """Check, before any work, that this user can create a new file or folder at `path`."""
    check_folder(path.parent, option)
    place = next((place for place in path.parents if place.is_dir()), path.parent)
    # A new entry takes both permissions of a folder.
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(
            f"{place}: expected write access for this user, found none; choose another {option} "
            "or change its owner (chown)"
        )
