"""Where data and results lie, the names of the files of a run, and checks of outputs."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from dance_flwr.config.sections import DataConfig
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError, in_the_way
from dance_flwr.fingerprint import APP

MANIFEST = "manifest.json"  # of a partition, beside its client folders
# In the folder of a run.
SETTINGS = "resume.toml"
RESULT, MODEL, HISTORY, ERROR = "result.json", "model.safetensors", "history.jsonl", "error.txt"
# In the folder that a run has at a client.
STATE, PREVIOUS = "state.npz", "previous.npz"
LEDGER = "llm.json"  # of its language model, where one was asked
_PACKAGE = Path(__file__).resolve().parents[1]
# Holds the package: the checkout, what Flower has unpacked, or where pip installs.
CODE = _PACKAGE.parent
# Holds the app's pyproject.toml, its two files, configs and partitions: the same folder, but in a
# wheel, where they lie inside the package (`force-include` in pyproject.toml).
PROJECT = wheel if (wheel := _PACKAGE / APP).is_dir() else CODE

_SHIPPED = ("configs", "partitions")


def shipped(path: Path) -> Path:
    """Return the file, or the shipped one of this name if the working folder has none.

    So `configs/cora.toml` names the same file in a checkout and where a wheel is installed.
    """
    inside = PROJECT / path
    # The user's own file first: it may be a changed copy of a shipped one.
    if not path.exists() and path.parts[:1] and path.parts[0] in _SHIPPED and inside.is_file():
        return inside
    return path


def data_root(config: DataConfig) -> Path:
    """Return `data-root`, else $DANCE_FLWR_HOME, else ~/.cache/dance-flwr, as an absolute path."""
    chosen = config.data_root or os.environ.get("DANCE_FLWR_HOME") or "~/.cache/dance-flwr"
    return Path(chosen).expanduser().resolve()


def state_root() -> Path:
    """Return the folder of what outlives runs and data: the server's key, the ledgers of nodes.

    It is $DANCE_FLWR_HOME/state, else ~/.local/state/dance-flwr: never in the folder of a run or of
    a client, which others may write, replace or pass on. `data-root` has no say, as a run names it.
    """
    home = os.environ.get("DANCE_FLWR_HOME")
    return Path(home, "state").resolve() if home else Path("~/.local/state/dance-flwr").expanduser()


def named_folder(values: Mapping[str, object]) -> Path | None:
    """Return the folder that the key `out` names in a configuration not yet checked, or None."""
    out = values.get("out")
    return Path(out).expanduser().resolve() if isinstance(out, str) and out else None


def out_dir(config: RunConfig, run: str) -> Path:
    """Return `out`, else runs/<data>-<method>-<run> below the data root, as an absolute path."""
    if config.out:
        return Path(config.out).expanduser().resolve()
    return data_root(config) / "runs" / f"{Path(config.data).name}-{config.method}-{run}"


def check_folder(path: Path, option: str) -> None:
    """Check, before any work, that a folder is at `path` or can be created there."""
    if file := in_the_way(path):
        raise UserError(f"{file}: expected a folder, found a file; choose another {option}")


def check_out(path: Path, option: str = "--out") -> None:
    """Check, before any work, that this user can create a new file or folder at `path`."""
    check_folder(path.parent, option)
    place = next((place for place in path.parents if place.is_dir()), path.parent)
    try:
        # A file without a name: root has the permission everywhere, even where no file can be.
        TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(
            f"{place}: expected write access for this user, found {error.strerror!r}; choose "
            f"another {option} or change its owner (chown)"
        ) from None
