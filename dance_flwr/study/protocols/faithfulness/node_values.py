"""Values of single nodes of the faithfulness study, as text in a row of results."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray

from dance_flwr.evidence.metrics.faithfulness import Values

# Rounding to 1 / 100 moves a mean of 300 values by 0.0002 (one standard deviation).
_STEPS = 100


def pack(values: Mapping[str, NDArray[np.float64]]) -> str:
    """Return values in [0, 1] as text, rounded to 1 / 100.

    Base64 of a compressed JSON line of names and columns (0 = a vector), then one byte per value.

    Raises
    ------
    ValueError : a value is outside [0, 1] or no number
    """
    for name, value in values.items():
        # A sum of float32 probabilities may pass 1 by rounding.
        if not ((value >= 0) & (value <= 1 + 1e-6)).all():
            raise ValueError(f"{name}: expected values in [0, 1], found others")
    header = {name: value.shape[1] if value.ndim > 1 else 0 for name, value in values.items()}
    # Column by column: the values of one budget stand together.
    rows = [np.rint(value.T * _STEPS).astype(np.uint8).tobytes() for value in values.values()]
    # The smallest form, as rows are committed.
    return b64encode(compress(json.dumps(header).encode() + b"\n" + b"".join(rows), 9)).decode()


def unpack(text: str) -> Values:
    """Return what `pack` stored."""
    header, _, content = decompress(b64decode(text)).partition(b"\n")
    columns: dict[str, int] = json.loads(header)
    rows = np.frombuffer(content, np.uint8).reshape(sum(max(n, 1) for n in columns.values()), -1)
    parts = np.split(rows / _STEPS, np.cumsum([max(n, 1) for n in columns.values()])[:-1])
    return {
        name: part.T if columns[name] else part[0]
        for name, part in zip(columns, parts, strict=True)
    }
