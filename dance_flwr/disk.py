"""Write files and folders whole or not at all, and report in one line what a disk refuses."""

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from filelock import FileLock

_FULL = {errno.ENOSPC, errno.EDQUOT}
# What Python's zip reader and NumPy raise for bytes that are no archive, or of other features.
_DAMAGED = (BadZipFile, EOFError, KeyError, NotImplementedError, OSError, RuntimeError, ValueError)
_DRAFT = re.compile(r"(\..+\.draft-[0-9a-f]{8})(?:\.lock)?")
# Of a place that is closed to this user. Any other error is no matter of the disk.
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def atomic_path(path: Path, *, keep: Path | None = None, lasting: bool = False) -> Iterator[Path]:
    """Yield the path of a draft to write; on success the draft replaces `path`.

    On an error `path` is unchanged and the draft is removed. Missing parent folders are created.

    Parameters
    ----------
    keep : where to move the file that is replaced; None discards it
    lasting : flush to the device first, so that the file survives a power failure
    """
    create_folder(path.parent)
    # Beside the target, as only a rename within one file system is atomic.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        if lasting:
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        # Between these two renames `path` is absent: a reader then takes `keep`.
        if keep is not None and path.is_file():
            path.replace(keep)
        draft.replace(path)
    finally:
        # A disk that refuses the file may refuse its removal too; the first error is the one to
        # report.
        with suppress(OSError):
            draft.unlink()


@contextmanager
def atomic_file(
    path: Path, *, keep: Path | None = None, lasting: bool = False, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Yield a draft of `path` that is open for writing; parameters as for `atomic_path`.

    Parameters
    ----------
    mode : permissions of the file before the umask; it has them before its first byte
    """
    with atomic_path(path, keep=keep, lasting=lasting) as draft:
        draft.unlink(missing_ok=True)  # one that a process of this number left, of any mode
        with open(draft, "wb", opener=partial(os.open, mode=mode)) as file:
            yield file


@contextmanager
def atomic_folder(path: Path, *, mode: int = 0o777) -> Iterator[Path]:
    """Yield an empty draft folder to fill; on success the draft becomes `path`.

    On an error the draft is removed. Drafts of any name beside `path` that killed processes left
    behind are removed first; a draft that is being written is locked, and stays.

    Parameters
    ----------
    path : must be absent or an empty folder; missing parent folders are created
    mode : permissions of the folder, before the umask
    """
    create_folder(path.parent)
    _remove_stale_drafts(path.parent)
    draft, lock = _locked_draft(path)
    try:
        draft.mkdir(mode=mode)
        yield draft
        draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):
            _lock_of(draft).unlink()
        lock.release()


def _locked_draft(path: Path) -> tuple[Path, "FileLock"]:
    """Return a name for a draft, and its lock, which the system releases when the process ends."""
    from filelock import FileLock

    while True:
        draft = path.with_name(f".{path.name}.draft-{os.urandom(4).hex()}")
        lock = FileLock(_lock_of(draft))
        lock.acquire()
        if _lock_of(draft).exists():
            return draft, lock
        lock.release()  # taken for a stale one between its creation and its locking


def _lock_of(draft: Path) -> Path:
    return draft.with_name(draft.name + ".lock")


def _remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts in a folder whose process is gone, and their locks."""
    from filelock import FileLock, Timeout

    names = {match[1] for entry in folder.iterdir() if (match := _DRAFT.fullmatch(entry.name))}
    for draft in (folder / name for name in names):
        # A draft or a lock that this user may not touch is another user's.
        with suppress(Timeout, OSError), FileLock(_lock_of(draft), timeout=0):
            shutil.rmtree(draft, ignore_errors=True)
            _lock_of(draft).unlink()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all."""
    with atomic_path(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write an indented JSON file, whole or not at all."""
    write_text(path, json_text(content, indent=1) + "\n")


def json_text(content: Any, indent: int | None = None) -> str:
    """Return content as JSON of the standard, which has no NaN and no infinity: they are null."""
    return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


def write_npz(path: Path, arrays: Mapping[str, Any], *, keep: Path | None = None) -> None:
    """Write an .npz file, whole or not at all; the file that is replaced moves to `keep`."""
    with atomic_file(path, keep=keep) as file:
        np.savez(file, **arrays)


def read_npz(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of an .npz file; None where it is absent or damaged.

    The checksum of every array is compared before its content is read.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            archive: ZipFile | None = getattr(file, "zip", None)
            # Why (decision 20): a damaged state counts as lost.
            if archive is None or archive.testzip() is not None:
                return None
            return {name: file[name] for name in file.files}
    except _DAMAGED:
        return None


def write_new(files: Mapping[Path, tuple[bytes, int]]) -> None:
    """Create files that must not exist yet, all of them or none.

    Parameters
    ----------
    files : path -> (content, mode); a file has its mode before its first byte is written

    Raises
    ------
    FileExistsError : one of the files exists
    OSError : a file cannot be written; the error names it
    """
    written: list[Path] = []
    try:
        for path, (content, mode) in files.items():
            create_folder(path.parent)
            # O_EXCL refuses a link that somebody put there, too.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(written[-1])
        raise


def create_folder(path: Path) -> None:
    """Create a folder and those above it, if they are missing.

    Raises
    ------
    NotADirectoryError : a file is in the way; the error names it
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        code, file = errno.ENOTDIR, in_the_way(path) or path
        raise NotADirectoryError(code, os.strerror(code), str(file)) from error


def in_the_way(folder: Path) -> Path | None:
    """Return the file that is where `folder` or one above it would be; None if there is none."""
    existing = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), None)
    return None if existing is None or existing.is_dir() else existing


@contextmanager
def disk_of(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses a writer of `folder` inside the block into one line.

    Raises
    ------
    UserError : the disk is full, or this user may not write to the folder; the line names the
        folder, what is free and what to do
    """
    try:
        yield
    except OSError as error:
        if not (_is_full(error) or error.errno in _CLOSED) or not _concerns(error, folder):
            raise
        raise UserError(_line(error, folder)) from None


def refusal(error: OSError) -> str:
    """Return one line for what a disk refused a command; "" for any other error."""
    if _is_full(error):
        return (
            f"{error.filename or 'the output disk'}: expected room to write, found none "
            f"({error.strerror or error}); free some space or set DANCE_FLWR_HOME to a folder on "
            "another disk, then run the same command again: it reuses every file that is complete"
        )
    if error.errno in _CLOSED:
        return (  # an error of Arrow has no file name; its text names the file
            f"{error.filename or 'the output'}: expected read and write access for this user, "
            f"found {error.strerror!r}; choose another folder (of prepared data: DANCE_FLWR_HOME) "
            "or change its owner (chown)"
        )
    if error.errno == errno.ENOTDIR and error.filename:
        path = Path(os.fsdecode(error.filename))
        return (
            f"{in_the_way(path.parent) or path}: expected a folder, found a file; choose another "
            "path"
        )
    return ""


def _is_full(error: OSError) -> bool:
    """Whether there was no room; NumPy reports byte counts instead of the system's error number."""
    return error.errno in _FULL or (error.errno is None and " requested and " in str(error))


def _concerns(error: OSError, folder: Path) -> bool:
    """Whether an error is about a file in `folder`; a full disk names no file."""
    return error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(folder)


def _line(error: OSError, folder: Path) -> str:
    if _is_full(error):
        return (
            f"{folder}: expected room for the files of a round, found {_free(folder)} "
            f"({error.strerror or error}); make room there (old runs in {folder / 'runs'} can be "
            "deleted), the node then takes part again without a restart"
        )
    return (
        f"{error.filename or folder}: expected read and write access to the folder, "
        f"found {error.strerror!r}; "
        "change its owner to the SuperNode's user (chown) and mount it read-write"
    )


def _free(folder: Path) -> str:
    with suppress(OSError):
        if (files := os.statvfs(folder)).f_files and not files.f_favail:
            return "no inode free"
        return f"{shutil.disk_usage(folder).free / 1e6:.1f} MB free"
    return "none"
