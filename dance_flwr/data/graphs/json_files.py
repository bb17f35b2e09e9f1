"""Read JSON files, with one line for whatever is wrong with them."""

import json
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.errors import DataError

_BLOCK = 1 << 20
_TIMES, _OBJECT = 3, 64  # bytes in memory per byte of the file, and per value


def read_json(file: Path, what: str, advice: str) -> Any:
    """Return the content of a JSON file after estimating, from its characters, what it will take.

    `[[],[],[]]` takes twenty times its length in memory, so the size of the file says too little.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, is not JSON, or would take more memory than the bound
    """
    meter = Meter(file)
    try:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                values = sum(block.count(mark) for mark in (b",", b"[", b"{"))
                meter.memory(_TIMES * len(block) + _OBJECT * values)
        return json.loads(file.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: expected {what}, found: {reason}; {advice}") from error


def read_object(file: Path, what: str, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, is not JSON, passes a bound, or holds another value than
        an object
    """
    content = read_json(file, what, advice)
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content
