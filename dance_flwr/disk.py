"""Write files and folders whole or not at all.

Everything that is written here belongs to its user alone, whatever the umask is: texts, keys, salts
and states lie on machines that other people use.
"""

import errno
import fcntl
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from filelock import FileLock

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
# What Python's zip reader and NumPy raise for bytes that are no archive, or of other features.
_DAMAGED = (BadZipFile, EOFError, KeyError, NotImplementedError, OSError, RuntimeError, ValueError)
_CLEANED: set[Path] = set()  # folders whose stale drafts this process has removed
_LEDGER_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds
_LOCK = ".lock"  # ending of the file that keeps the draft of a folder locked
_DRAFT = re.compile(r"(\..+\.draft-[0-9a-f]{8})(?:\.lock)?")


Content = TypeVar("Content")


@contextmanager
def atomic_path(path: Path, *, keep: Path | None = None, lasting: bool = False) -> Iterator[Path]:
    """Yield the path of an empty draft to write; on success the draft replaces `path`.

    On an error `path` is unchanged and the draft is removed. Missing parent folders are created.
    The first writer of a process in a folder removes the drafts of killed processes there.

    Parameters
    ----------
    keep : where to move the file that is replaced; None discards it
    lasting : flush the file, and then its folder, so that both survive a power failure
    """
    create_folder(path.parent)
    _remove_stale_drafts(path.parent)
    draft, held = _open_draft(path)
    try:
        yield draft
        if lasting:
            _flush(draft)  # by name, as some libraries put another file in its place
        # Between these two renames `path` is absent: a reader then takes `keep`. Removed first, as
        # a rename onto a file waits for the disk (decision 10).
        if keep is not None and path.is_file():
            keep.unlink(missing_ok=True)
            path.rename(keep)
        draft.replace(path)
        if lasting:
            _flush(path.parent)
    except OSError as error:
        if error.errno:  # a full disk names no file
            error.filename = error.filename or str(path)
        raise
    finally:
        # A disk that refuses the file may refuse its removal too; the first error is reported.
        with suppress(OSError):
            draft.unlink()
        os.close(held)


def private_folder() -> Path:
    """Return a new folder of this user alone, short enough for the path of a socket in it."""
    # The path may have 103 bytes (macOS) or 107, of which Ray uses 88.
    short = len(os.fsencode(tempfile.gettempdir())) <= 15
    return Path(tempfile.mkdtemp(prefix="dance-flwr-", dir=None if short else "/tmp"))


def _open_draft(path: Path, lock: str = "") -> tuple[Path, int]:
    """Return a name for a draft, and the descriptor of the file that keeps it locked while open.

    Parameters
    ----------
    lock : ending of that file's name; "" for the draft itself
    """
    while True:
        # Beside the target, as only a rename within one file system is atomic.
        draft = path.with_name(f".{path.name}.draft-{os.urandom(4).hex()}")
        file = Path(f"{draft}{lock}")
        # It exists before it is written: libraries that open it by name keep its mode.
        held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            if _lock(held, file):
                return draft, held
        except BaseException:
            file.unlink(missing_ok=True)
            os.close(held)
            raise
        os.close(held)  # taken for a stale one between its creation and its lock


def _lock(held: int, file: Path) -> bool:
    """Lock an open file; whether it was free, and still has its name."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(held), file.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def atomic_file(
    path: Path, *, keep: Path | None = None, lasting: bool = False
) -> Iterator[BinaryIO]:
    """Yield a draft of `path` that is open for writing; parameters as for `atomic_path`."""
    with atomic_path(path, keep=keep, lasting=lasting) as draft, draft.open("r+b") as file:
        yield file


def private_lock(path: Path, timeout: float = -1) -> "FileLock":
    """Return a lock whose file, and whose folder if it is missing, are of this user alone."""
    from filelock import FileLock

    create_folder(path.parent)
    return FileLock(path, timeout=timeout, mode=PRIVATE_FILE)


@contextmanager
def awaited_lock(path: Path, patience: float, say: Callable[[], object]) -> Iterator[None]:
    """Hold the lock in this file; where another process still has it after some seconds, `say`."""
    from filelock import Timeout

    lock = private_lock(path)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        say()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def ledger(
    path: Path, empty: Any, read: Callable[[Any], Content], expected: str
) -> Iterator[Content]:
    """Yield the content of a JSON file, and write it back if the block changed it.

    Processes take turns. The file is on the device when the block ends, so that it outlives a kill;
    after an error in the block nothing is written.

    Parameters
    ----------
    empty : the content of a file that does not exist
    read : converts and checks the parsed JSON
    expected : "what the file holds; what to do about a damaged one"

    Raises
    ------
    UserError : the file is damaged
    """
    what, _, remedy = expected.partition("; ")
    with private_lock(path.with_name(f".{path.name}.lock"), timeout=_LEDGER_SECONDS):
        try:
            content = read(json.loads(path.read_text("utf-8")) if path.exists() else empty)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}: expected {what}, found a damaged file ({error}); {remedy}"
            ) from None
        before = json.dumps(content)
        yield content
        if json.dumps(content) != before:
            with atomic_file(path, lasting=True) as file:
                file.write((json.dumps(content, indent=1) + "\n").encode())


def append_to(path: Path, *, new: bool = True) -> BinaryIO:
    """Open a private file to append bytes; its folder must exist.

    Parameters
    ----------
    new : whether it may be created

    Raises
    ------
    FileNotFoundError : it is not there
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags if new else flags & ~os.O_CREAT, PRIVATE_FILE)

    return open(path, "ab", opener=opener)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty draft folder to fill; on success the draft becomes `path`.

    On an error the draft is removed. Stale drafts of killed processes beside `path` are removed
    first; a draft that is being written is locked, and stays. Only its user may open the folder
    and what is in it.

    Parameters
    ----------
    path : must be absent or an empty folder; missing parent folders are created
    """
    create_folder(path.parent)
    _remove_stale_drafts(path.parent, again=True)
    draft, held = _open_draft(path, _LOCK)
    try:
        draft.mkdir(PRIVATE_FOLDER)
        yield draft
        for entry in draft.rglob("*"):  # also those of libraries that create files themselves
            entry.chmod(PRIVATE_FOLDER if entry.is_dir() else PRIVATE_FILE)
        draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):
            Path(f"{draft}{_LOCK}").unlink()
        os.close(held)


def _remove_stale_drafts(folder: Path, again: bool = False) -> None:
    """Remove the drafts of a folder whose process is gone; where it was done, only `again`."""
    # Once: a folder of many files is not listed for each of them.
    if folder in _CLEANED and not again:
        return
    _CLEANED.add(folder)
    names = {match[1] for entry in folder.iterdir() if (match := _DRAFT.fullmatch(entry.name))}
    for draft in (folder / name for name in names):
        file = draft if draft.is_file() else Path(f"{draft}{_LOCK}")
        # A draft or a lock that this user may not touch is another user's.
        with suppress(OSError), os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)) as f:
            if _lock(f.fileno(), file):
                shutil.rmtree(draft, ignore_errors=True)
                file.unlink()


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
    archive = BytesIO()
    np.savez(archive, **arrays)
    with atomic_file(path, keep=keep) as file:
        file.write(archive.getbuffer())


def read_npz(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of an .npz file; None where it is absent or damaged.

    The checksum of every array is compared before its content is read.
    """
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            archive: ZipFile | None = getattr(file, "zip", None)
            # Why (decision 20): a damaged state counts as lost.
            if archive is None or archive.testzip() is not None:
                return None
            return {name: file[name] for name in file.files}
    except _DAMAGED:
        return None


def mapped_array(path: Path) -> NDArray[Any]:
    """Return the array of an .npy file, memory-mapped, read-only and without a descriptor."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        content = file.read_buffer()
    header = pa.BufferReader(content)
    npy.read_magic(header)
    shape, by_columns, dtype = npy.read_array_header_1_0(header)
    array = np.frombuffer(content, dtype, math.prod(shape), header.tell())
    return array.reshape(shape, order="F" if by_columns else "C")


def create_folder(path: Path) -> None:
    """Create a folder of this user alone, and those above it, if they are missing.

    Raises
    ------
    NotADirectoryError : a file is in the way; the error names it
    PermissionError : this file system takes no folder
    """
    try:
        # One by one: `Path.mkdir` gives its mode to the last folder only.
        for folder in () if path.is_dir() else (*reversed(path.parents), path):
            if not folder.is_dir():
                folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
                _flush(folder.parent)  # or files below it are lost with its name
    except (FileExistsError, FileNotFoundError) as error:
        # A file system such as /proc takes no folder, though the one above is there.
        code = errno.ENOTDIR if isinstance(error, FileExistsError) else errno.EPERM
        raise OSError(code, os.strerror(code), error.filename) from error


def _flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the device."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network file systems have no such call; a folder that may not be listed is older.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise
