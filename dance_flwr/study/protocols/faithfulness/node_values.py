"""Values of single nodes in the faithfulness study: measured, and packed into a row."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from zlib import compress, decompress

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.evidence.metrics.faithfulness import CONTROLS, EVIDENCE, Outcomes

EXPLAINER = "gnn-explainer"  # the masks of `experiments.faithfulness_masks`
OTHERS = (*CONTROLS[:2], f"{EXPLAINER}-by-hop", EXPLAINER, *CONTROLS[2:])
SOURCES = (EVIDENCE, *OTHERS)
_STEPS = 100  # moves a mean of 300 values by 0.0002 (one standard deviation of the rounding)

# By name, [n] or [n, S] float64. `node_values` are probabilities and shares, all in [0, 1];
# `measures` are what the tables show, by "source/measure".
Values = dict[str, NDArray[np.float64]]


def node_values(seen: Outcomes, labels: torch.Tensor) -> Values:
    """Return p(y^), y^ = argmax full, whether the class changes and whether it is right, by node.

    "full", "bare" and "textless" are [m]; "source/removed" and "source/kept" [m, S] for the S
    budgets, "source/alone" [m]. Each of the latter has "/flipped" and "/correct" too, at the last
    budget; "full", "bare" and "textless" have "/correct". Random sources are means over draws.

    Parameters
    ----------
    labels : [m] true classes
    """
    chosen = seen.full.argmax(dim=1)
    values: dict[str, torch.Tensor] = {}

    def add(name: str, draws: torch.Tensor) -> None:
        """Add an intervention, [draws, S, m, C]."""
        at = chosen.expand(draws.shape[:-1])[..., None]
        values[name] = draws.gather(-1, at)[..., 0].mean(0).T
        classes = draws[:, -1].argmax(dim=-1)
        values[f"{name}/flipped"] = (classes != chosen).double().mean(0)
        values[f"{name}/correct"] = (classes == labels).double().mean(0)

    whole = {"full": seen.full, "bare": seen.bare, "textless": seen.textless}
    for name, probs in whole.items():
        add(name, probs[None, None])
    for source in [name for name in SOURCES if name in seen.removed]:
        add(f"{source}/removed", seen.removed[source])
        add(f"{source}/kept", seen.kept[source])
        add(f"{source}/alone", seen.alone[source][:, None])
    single = [name for name in values if name in whole or name.endswith("/alone")]
    values |= {name: values[name][:, 0] for name in single}
    return {name: value.double().cpu().numpy() for name, value in values.items()}


def measures(values: Mapping[str, NDArray[np.float64]]) -> Values:
    """Return the measures of each node, [m] or [m, S + 1], by "source/measure".

    `comprehensiveness` and `sufficiency` are the drops in p(y^) without the whole pack and with
    nothing else in the pool, `sufficiency-alone` with no other text in the client at all; `aopc-*`
    their means over k = 0 and the budgets (DeYoung et al. 2020, "ERASER", eqs. 1 to 3);
    `flipped-*` whether the class changes; `deletion` and `insertion` p(y^) by number of chunks;
    `correct-*` whether the prediction is right.
    """
    full, bare = values["full"], values["bare"]
    found: Values = {
        "predicted/confidence": full,
        "predicted/correct": values["full/correct"],
        "none/sufficiency": full - bare,
        "none/sufficiency-alone": full - values["textless"],
    }
    for name, source in (("kept", "bare"), ("alone", "textless")):
        found[f"none/flipped-{name}"] = values[f"{source}/flipped"]
        found[f"none/correct-{name}"] = values[f"{source}/correct"]
    for source in [name for name in SOURCES if f"{name}/removed" in values]:
        deletion = np.column_stack([full, values[f"{source}/removed"]])
        insertion = np.column_stack([bare, values[f"{source}/kept"]])
        measured = {
            "comprehensiveness": full - deletion[:, -1],
            "sufficiency": full - insertion[:, -1],
            "sufficiency-alone": full - values[f"{source}/alone"],
            "aopc-comprehensiveness": full - deletion.mean(1),
            "aopc-sufficiency": full - insertion.mean(1),
            "deletion": deletion,
            "insertion": insertion,
        }
        for what in ("removed", "kept", "alone"):
            measured[f"flipped-{what}"] = values[f"{source}/{what}/flipped"]
            measured[f"correct-{what}"] = values[f"{source}/{what}/correct"]
        found |= {f"{source}/{measure}": value for measure, value in measured.items()}
    return found


def pack(values: Mapping[str, NDArray[np.float64]]) -> str:
    """Return values in [0, 1] as text, rounded to 1 / 100.

    Base64 of a compressed JSON line of names and columns (0 = a vector), then one byte per value.

    Raises
    ------
    ValueError : a value is outside [0, 1] or no number
    """
    for name, value in values.items():
        if not ((value >= 0) & (value <= 1 + 1e-6)).all():
            raise ValueError(f"{name}: expected values in [0, 1], found others")
    header = {name: value.shape[1] if value.ndim > 1 else 0 for name, value in values.items()}
    # Column by column: the values of one budget stand together.
    rows = [np.rint(value.T * _STEPS).astype(np.uint8).tobytes() for value in values.values()]
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
