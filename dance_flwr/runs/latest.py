"""The word `latest`: the run that this user started last, wherever its folder is."""

from pathlib import Path

from dance_flwr.config.paths import state_root
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError

_FILE = "latest-run"  # holds the path of a folder


def remember(folder: Path) -> None:
    """Make `latest` stand for the run in this folder."""
    write_text(state_root() / _FILE, f"{folder.resolve()}\n")


def run_folder(name: str | Path) -> Path:
    """Return the folder that a user names: a path, or `latest`; without one, a `UserError`."""
    if str(name) != "latest":
        return Path(name)
    file = state_root() / _FILE
    folder = Path(file.read_text("utf-8").strip()) if file.is_file() else None
    if folder is None or not folder.is_dir():
        what = "none" if folder is None else f"that {folder} is gone"
        line = f"latest: expected a run of this user, found {what}; start one with `dance-flwr run`"
        raise UserError(line)
    return folder
