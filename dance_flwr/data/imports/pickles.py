"""PyG `Data` objects saved with `torch.save`: measured first, and no code in them is run."""

import lzma
import pickle
import pickletools
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch

from dance_flwr.data.graphs.limits import UNPACKED_FLOOR, UNPACKED_RATIO, Meter
from dance_flwr.errors import DataError

# Bytes in memory of what one opcode makes. MARK is a list of its own in torch's unpickler.
_OPCODES = {"EMPTY_LIST": 64, "EMPTY_DICT": 72, "EMPTY_SET": 224, "MARK": 64}
_OPCODES |= dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LONG_BINPUT"), 128)
_OTHER = 16
_CALLS = {"REDUCE", "NEWOBJ", "BUILD"}
_CALL, _ITEM = 1024, 64  # a call may copy every item that was read before it
# The meter is asked once per MiB, not once per opcode.
_FLUSH = 1 << 20
_DAMAGED = (ValueError, OSError, EOFError, MemoryError, RuntimeError, LookupError, struct.error)
_PICKLES = 5  # of a file in torch's old format, before the storages
# torch would call them with a size, or many times with one long text.
_MULTIPLIERS = ("bytearray", "encode")


def check_zip(file: Path) -> None:
    """Check, before unpacking, that a zip archive does not declare far more bytes than it holds.

    `torch.save` does not compress, so a file declares about its own size. Recompressed texts and
    masks are 5 to 50 times smaller; a bomb of zeros is 1,000 times smaller.

    Raises
    ------
    DataError : the declared sizes exceed both 64 MiB and 50 times the file's size, or the bound of
        the memory, or the archive's directory is damaged
    """
    try:
        with zipfile.ZipFile(file) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{file}: expected a complete zip archive, found: {error}; download the file again"
        ) from error
    # A ratio alone would refuse small files of zeros, such as masks, which do no harm.
    bound = max(UNPACKED_FLOOR, UNPACKED_RATIO * file.stat().st_size)
    if declared > bound:
        raise DataError(
            f"{file}: expected at most {bound >> 20} MiB unpacked, found {declared >> 20} MiB "
            f"declared in {file.stat().st_size} bytes; do not use this file"
        )
    Meter(file).memory(declared)


def check_pickles(file: Path, is_zip: bool) -> None:
    """Check what the pickles of a torch file would make, without making it.

    Raises
    ------
    DataError : it would take more memory than the bound, or the file would call a function that
        can make any amount of data from a few bytes
    """
    meter = Meter(file)
    try:
        meter.memory(file.stat().st_size)
        # torch's old format: pickles one after the other, then raw storages.
        if not is_zip:
            with file.open("rb") as stream, suppress(ValueError, MemoryError):
                for _ in range(_PICKLES):  # up to a damaged one, where the unpickler stops too
                    _check(stream, meter)
            return
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                # The other members are storages, which `check_zip` has bounded.
                if entry.filename.lower().endswith(".pkl"):
                    with archive.open(entry) as member:
                        _check(member, meter)
    except (*_DAMAGED, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        # One short line, as an unpickler quotes the file.
        reason = " ".join(str(error).split())[:120]
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({reason}); download it again"
        ) from error


def _check(stream: IO[bytes], meter: Meter) -> None:
    """Count what one pickle makes."""
    items = size = 0
    for opcode, value, _ in pickletools.genops(stream):
        name = opcode.name
        if name == "GLOBAL" and str(value).split(" ")[-1] in _MULTIPLIERS:
            raise DataError(
                f"{meter.where}: expected tensors, lists and a PyG Data object only, "
                f"found {str(value).replace(' ', '.')}; nothing of it was run"
            )
        if name in _CALLS:
            size += _CALL + _ITEM * items
        else:
            # PUT numbers a value that is already on the stack, so it adds no item.
            items += not name.endswith("PUT")
            size += _OPCODES.get(name, _OTHER)
            if isinstance(value, str | bytes):
                size += sys.getsizeof(value)
        if size > _FLUSH:
            meter.memory(size)
            size = 0
    meter.memory(size)


TEXT_KEYS = ("raw_texts", "raw_text", "texts", "text")
LABEL_NAME_KEYS = ("label_name", "label_names", "class_names")


def load(file: Path) -> Any:
    """Return the content of a `torch.save` file: tensors, plain containers and PyG `Data` only.

    Raises
    ------
    DataError : the file holds other objects or code (which is never run), is damaged, or would
        take more memory than the bound
    """
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        is_zip = zipfile.is_zipfile(file)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({error}); download it again"
        ) from error
    if is_zip:
        check_zip(file)
    # Before torch reads the file: its unpickler builds what it is told to, without a bound.
    check_pickles(file, is_zip)
    try:
        with (
            # PyG's own classes and nothing else: the unpickler calls whatever is listed.
            torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]),
            _quiet(),
        ):
            # To the CPU: a file may name a GPU that this machine lacks.
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{file}: expected tensors, lists and a PyG Data object only, found {_reason(error)}; "
            "nothing of it was run"
        ) from error
    except OSError as error:
        raise DataError(
            f"{file}: expected a readable file, found: {error.strerror or error}; "
            "check its permissions"
        ) from error
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        reason = " ".join(str(error).split())[:120]
        raise DataError(
            f"{file}: expected a torch file, found a damaged one ({reason}); download it again"
        ) from error


def as_mapping(content: Any, file: Path) -> Mapping[str, Any]:
    """Return the content of a `Data` object, a dict, or the first entry of a saved PyG data set."""
    from torch_geometric.data import Data

    if isinstance(content, tuple) and content:
        content = content[0]
    if isinstance(content, Data):
        try:
            return {str(k): v for k, v in content.to_dict().items()}
        except Exception as error:  # a Data object from a damaged file
            raise DataError(
                f"{file}: expected a complete PyG Data object, found a damaged one; "
                "download it again"
            ) from error
    if isinstance(content, dict):
        return {str(k): v for k, v in content.items()}
    raise DataError(
        f"{file}: expected a PyG Data object, found {type(content).__name__}; save a Data object"
    )


def strings(values: Any, where: str) -> list[str]:
    """Return a list of texts; None becomes ""."""
    if not isinstance(values, list | tuple):
        raise DataError(
            f"{where}: expected a list of texts, found {type(values).__name__}; convert it"
        )
    wrong = next((v for v in values if not isinstance(v, str | None)), None)
    if wrong is not None:
        raise DataError(
            f"{where}: expected a list of texts, found an entry of {type(wrong).__name__}; "
            "convert it"
        )
    return [v or "" for v in values]


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warnings about how the file was pickled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reason(error: Exception) -> str:
    """Return the name of the object that the unpickler refused, if it names one."""
    words = " ".join(str(error).split())
    for mark in ("Unsupported global: GLOBAL ", "Unsupported class ", "Unsupported operand "):
        if mark in words:
            return words.partition(mark)[2].split(" ")[0].rstrip(".,")
    return "something else"
