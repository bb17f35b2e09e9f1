"""Means of the faithfulness study over seeds, with intervals over nodes.

The values of single nodes stand as text in the rows of results.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray

from dance_flwr_studies.metrics.controls import EVIDENCE
from dance_flwr_studies.metrics.faithfulness import OTHERS, Values, measures

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


RESAMPLES = 2000
DIFFERENCE = "evidence minus "  # before the source, in names of paired differences


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds; scalars, or one entry per number of chunks.

    Attributes
    ----------
    mean : mean over the seeds of their means over nodes
    low, high : 95 % interval
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def text(self, sign: bool = False, scale: float = 1, digits: int = 3) -> str:
        """Return "mean [low, high]"."""
        form = f"{'+' if sign else ''}.{digits}f"
        low, high = scale * self.low, scale * self.high
        return f"{scale * self.mean:{form}} [{low:{form}}, {high:{form}}]"


def estimates(analyses: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Return estimates by "source/measure", and of paired differences to each control.

    They are of the measures that every seed has, from the same resamples.
    """
    seeds = [_with_differences(analysis) for analysis in analyses]
    names = [
        name
        for name, value in seeds[0].items()
        if all(name in seed and seed[name].shape[1:] == value.shape[1:] for seed in seeds)
    ]
    rows = bootstrap([np.column_stack([seed[name] for name in names]) for seed in seeds])
    widths = [seeds[0][name].reshape(len(seeds[0][name]), -1).shape[1] for name in names]
    parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    return {
        name: Estimate(*(part if seeds[0][name].ndim > 1 else part[:, 0]))
        for name, part in zip(names, parts, strict=True)
    }


def bootstrap(seeds: Sequence[NDArray[np.float64]], key: int = 0) -> NDArray[np.float64]:
    """Return [3, F] mean, low, high: nodes resampled within seeds, then averaged over seeds.

    The interval is from the 2.5 to the 97.5 percentile of 2000 resamples, so it never leaves the
    range of the values. Seeds count equally and are fixed: it covers the choice of nodes, not that
    of seeds. Source: Efron and Tibshirani 1993, ch. 13.

    Parameters
    ----------
    seeds : [n_s, F] values of the nodes of each seed
    key : decides the resamples, which all columns share
    """
    columns = seeds[0].shape[1]
    mean, resampled = np.zeros(columns), np.zeros((RESAMPLES, columns))
    for number, values in enumerate(seeds):
        size, rng = len(values), np.random.default_rng([key, number])
        # How often a resample draws each node: one product gives the means of all resamples.
        weights = rng.multinomial(size, np.full(size, 1 / size), RESAMPLES) / size
        mean += values.mean(axis=0) / len(seeds)
        resampled += weights @ values / len(seeds)
    return np.stack([mean, *np.percentile(resampled, (2.5, 97.5), axis=0)])


def _with_differences(analysis: Mapping[str, Any]) -> Values:
    values = measures(unpack(analysis["node_values"]))
    paired: Values = {}
    for name, value in values.items():
        source, measure = name.split("/")
        if source in OTHERS and value.ndim == 1:
            paired[f"{DIFFERENCE}{name}"] = values[f"{EVIDENCE}/{measure}"] - value
    return values | paired
