"""What a process remembers of the files of a client."""

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

# `ClientData.cached`: returns the value of a name, computed anew where its key is another one.
Cached = Callable[[str, Hashable, Callable[[], Any]], Any]


def anew(name: str, key: Hashable, compute: Callable[[], Any]) -> Any:
    """Remember nothing: the simplest `Cached`."""
    return compute()


def file_version(path: Path) -> Hashable | None:
    """Return what differs once a file is replaced or changed; None where there is none."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # The inode too: a file is replaced whole, maybe in the same tick of the system's clock.
    return path, stat.st_ino, stat.st_size, stat.st_mtime_ns
