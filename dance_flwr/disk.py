"""Files that appear whole or not at all, and one line where a disk refuses them."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dance_flwr.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def atomic_path(path: Path, *, keep: Path | None = None, lasting: bool = False) -> Iterator[Path]:
    """Give a draft beside `path` to write, and put it in its place when it is whole.

    On an error nothing changes and no draft stays. The folder is made where it is missing.

    Parameters
    ----------
    keep : where a file that is replaced goes; None = nowhere
    lasting : wait until the disk has it, so that it outlives a power cut
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        if lasting:
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        if keep is not None and path.is_file():
            path.replace(keep)
        draft.replace(path)
    finally:
        # A disk that takes no file may take no removal either; the first error counts.
        with suppress(OSError):
            draft.unlink()


@contextmanager
def atomic_file(
    path: Path, *, keep: Path | None = None, lasting: bool = False
) -> Iterator[BinaryIO]:
    """Open a draft of `path` for writing; parameters as of `atomic_path`."""
    with (
        atomic_path(path, keep=keep, lasting=lasting) as draft,
        draft.open("wb") as file,
    ):
        yield file


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a draft folder to fill, and put it in the place of `path` when it is whole.

    On an error no draft stays; those that killed processes left are removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}-*"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield draft
        draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with atomic_path(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_npz(path: Path, arrays: Mapping[str, Any], *, keep: Path | None = None) -> None:
    """Write arrays, whole or not at all; a file that is replaced goes to `keep`."""
    with atomic_file(path, keep=keep) as file:
        np.savez(file, **arrays)


@contextmanager
def disk_of(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses a writer of `folder` inside the block into one line.

    Raises
    ------
    UserError : the disk is full, or the folder is closed to this user; which folder, what is free,
        what to do
    """
    try:
        yield
    except OSError as error:
        if not (_is_full(error) or error.errno in _CLOSED) or not _concerns(error, folder):
            raise
        raise UserError(_line(error, folder)) from None


def refusal(error: OSError) -> str:
    """Return one line for what a disk refused a command; "" where the error is of another kind."""
    if _is_full(error):
        return (
            f"{error.filename or 'the disk that is written to'}: expected room to write, found none "
            f"({error.strerror or error}); make room or set DANCE_FLWR_HOME to a folder on another disk, then run the "
            "same command again: what is whole is found again"
        )
    if error.errno in _CLOSED:
        return (
            f"{error.filename}: expected that this user may read and write there, found {error.strerror!r}; "
            "choose another folder, or give it to this user (chown)"
        )
    return ""


def _is_full(error: OSError) -> bool:
    """Whether there was no room; numpy gives the numbers of bytes instead of the disk's own number."""
    return error.errno in _FULL or (error.errno is None and " requested and " in str(error))


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether an error is of a file in `folder`; a full disk names no file."""
    return error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(folder)


def _line(error: OSError, folder: Path) -> str:
    if _is_full(error):
        return (
            f"{folder}: expected room for what a round leaves, found {_free(folder)} ({error.strerror or error}); make "
            f"room there (old runs in {folder / 'runs'} can go), the node takes part again by itself"
        )
    return (
        f"{error.filename or folder}: expected that this user may read and write in its folder, found "
        f"{error.strerror!r}; give it to the SuperNode's user (chown) and mount it read-write"
    )


def _free(folder: Path) -> str:
    with suppress(OSError):
        if (files := os.statvfs(folder)).f_files and not files.f_favail:
            return "no inode free"
        return f"{shutil.disk_usage(folder).free / 1e6:.1f} MB free"
    return "none"
