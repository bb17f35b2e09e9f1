"""Zip archives and pickles of strangers, measured before they are opened."""

import lzma
import pickletools
import struct
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO

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
