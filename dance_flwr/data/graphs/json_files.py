"""Read JSON files, with one line for whatever is wrong with them."""

import json
from pathlib import Path
from typing import Any

from dance_flwr.errors import DataError


def read_object(file: Path, what: str, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Parameters
    ----------
    what : what the file should be, for the message
    advice : what the user can do about a bad file, for the message

    Raises
    ------
    DataError : the file cannot be read, is not JSON, or holds another value than an object
    """
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file}: expected {what}, found: {reason}; {advice}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected {what}, found {type(content).__name__}; {advice}")
    return content
