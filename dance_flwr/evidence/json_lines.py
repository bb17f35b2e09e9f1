"""Evidence packs as JSON lines, one object per node: written with predictions, verified later."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import WEIGHT_TOLERANCE

_LINES_PER_BLOCK = 1024  # recomputed at once


def evidence_lines(
    packs: Packs, ids: list[str], names: Sequence[str], bundle: str = ""
) -> Iterator[Mapping[str, Any]]:
    """Yield one object per pack: the predictions, and the spans and neighbours of the evidence.

    `spans` are ranges of characters in source texts, heaviest first, with the sha256 of their UTF-8
    text; `neighbours` are the selected nodes.

    Parameters
    ----------
    bundle : sha256 of the bundle that predicts; "" for the model of a run
    """
    for row, node in enumerate(packs.nodes):
        near, spans = packs.neighbours_of(row), packs.chunks_of(row)
        yield {
            "id": ids[node],
            "bundle": bundle,
            "model": packs.model_id,
            "views": {
                stage: dict(zip(names, map(float, packs.probs[at, row]), strict=True))
                for at, stage in enumerate(packs.stages)
            },
            "neighbours": [
                {"id": ids[other], "hop": int(hop), "gate": float(gate)}
                for other, hop, gate in zip(
                    packs.neighbours[near],
                    packs.neighbour_hops[near],
                    packs.neighbour_weights[near],
                    strict=True,
                )
            ],
            "spans": [
                {
                    "id": ids[other],
                    "start": int(start),
                    "end": int(end),
                    "weight": float(weight),
                    "sha256": digest.tobytes().hex(),
                }
                for other, (start, end), weight, digest in zip(
                    packs.chunk_nodes[spans],
                    packs.chunk_spans[spans],
                    packs.chunk_weights[spans],
                    packs.chunk_sha256[spans],
                    strict=True,
                )
            ],
        }


def verify_lines(
    explainer: Explainer, lines: Sequence[Mapping[str, Any]], path: Path, bundle: str
) -> int:
    """Compute evidence again with the model and the data, and compare every entry.

    Every node of the data must have one line.

    Parameters
    ----------
    lines : what `read_lines` returned; path : their file, for errors
    bundle : sha256 of the bundle

    Returns
    -------
    number of spans

    Raises
    ------
    UserError : names the node that is missing, or the first entry that does not agree
    """
    data = explainer.data
    ids = data.ids()
    row_of = {name: row for row, name in enumerate(ids)}
    if strange := [line["id"] for line in lines if line["id"] not in row_of]:
        raise UserError(
            f"{path}: expected evidence of nodes of this graph, found {strange[0]!r}; name the "
            "data that were predicted"
        )
    # Why every node (decision 20): else nobody would notice a removed line.
    if missing := row_of.keys() - {line["id"] for line in lines}:
        first, more = min(missing, key=row_of.__getitem__), len(missing) - 1
        rest = f" and {more:,} more" if more else ""
        raise UserError(
            f"{path}: expected evidence of all {len(ids):,} nodes of the data, found none of "
            f"{first!r}{rest}; lines were removed, or name the data that were predicted"
        )
    for start in range(0, len(lines), _LINES_PER_BLOCK):
        block = lines[start : start + _LINES_PER_BLOCK]
        nodes = torch.tensor([row_of[line["id"]] for line in block])
        recomputed = evidence_lines(explainer.explain(nodes), ids, data.card.class_names, bundle)
        for line, expected in zip(block, recomputed, strict=True):
            if fault := first_difference(line, expected):
                raise UserError(
                    f"{path}: node {line['id']!r}: {fault} by model {expected['model']}; the "
                    "evidence, the texts, the edges or the model were altered"
                )
    return sum(len(line["spans"]) for line in lines)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read lines of evidence, each of another node.

    Raises
    ------
    UserError : a line is no JSON object with an id, or there is no line
    """
    lines: list[dict[str, Any]] = []
    where = str(path)
    try:
        for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
            where = f"{path} line {number}"
            line = json.loads(text, object_pairs_hook=_without_repetition)
            if not isinstance(line, dict) or not isinstance(line.get("id"), str):
                raise ValueError(f"{text[:40]!r}, which has no id")
            lines.append(line)
        where = str(path)
        if not lines:
            raise ValueError("no line")
        name, count = Counter(line["id"] for line in lines).most_common(1)[0]
        if count > 1:
            raise ValueError(f"node {name!r} {'twice' if count == 2 else f'{count} times'}")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{where}: expected evidence that `dance-flwr predict` wrote, found {error}"
        ) from None
    return lines


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Why (decision 20): readers differ in which of two equal keys they keep, so that what was
    # verified may not be what another program shows.
    values = dict(pairs)
    if len(values) < len(pairs):
        name = next(name for name, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{name!r} twice")
    return values


def first_difference(found: Any, expected: Any, where: str = "") -> str:
    """Return the first difference of two JSON values in words; "" if there is none.

    Numbers with a fraction may differ by `WEIGHT_TOLERANCE`. Keys, types and lengths must be equal:
    an entry of weight 0 changes no sum, but a reader would take it for evidence.

    Examples
    --------
    >>> first_difference({"spans": [{"weight": 0.3}]}, {"spans": [{"weight": 0.2}]})
    'expected spans 1 weight 0.2, found 0.3'
    """
    if type(found) is not type(expected):
        return f"expected{where} {expected!r:.80}, found {found!r:.80}"
    if isinstance(expected, dict):
        if odd := sorted(found.keys() ^ expected.keys()):
            one = f"{odd[0]!r:.80}"
            entry, state = (f"no {one}", "one") if odd[0] in found else (one, "none")
            return f"expected{where or ' a line'} with {entry}, found {state}"
        parts = ((f"{where} {key}", found[key], expected[key]) for key in expected)
    elif isinstance(expected, list):
        # Sorted, as weights that are nearly equal may change places on another machine.
        pairs = zip_longest(_sorted(found), _sorted(expected))
        parts = ((f"{where} {number}", *pair) for number, pair in enumerate(pairs, start=1))
    elif isinstance(expected, float):
        # Not ">", which is false for NaN.
        same = abs(found - expected) <= WEIGHT_TOLERANCE
        return "" if same else f"expected{where} {expected!r}, found {found!r}"
    else:
        same = found == expected
        return "" if same else f"expected{where} {expected!r:.80}, found {found!r:.80}"
    return next(
        filter(None, (first_difference(one, other, name) for name, one, other in parts)), ""
    )


def _sorted(entries: list[Any]) -> list[Any]:
    def place(entry: Any) -> str:
        named = entry if isinstance(entry, dict) else {}
        return json.dumps([named.get(key) for key in ("hop", "id", "start", "end")])

    return sorted(entries, key=place)
