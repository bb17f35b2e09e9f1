"""Evidence as JSON lines, one object per node: written with predictions, and checked later."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import inf, isnan
from pathlib import Path
from typing import Any

import torch

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.predicting import explained, opened
from dance_flwr.data.client_folder import Say
from dance_flwr.errors import UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import WEIGHT_TOLERANCE

_BLOCK = 1024  # lines that are computed again at once
# What a line holds: name -> type.
_LINE = {"id": str, "model": str, "views": dict, "neighbours": list, "spans": list}
_NEIGHBOUR = {"id": str, "hop": int, "gate": float}
_SPAN = {"id": str, "start": int, "end": int, "weight": float, "sha256": str}


def evidence_lines(
    packs: Packs, ids: list[str], names: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield one object per pack: what is predicted, and the spans that it rests on.

    `spans` are characters of the source text of a node of this graph, heaviest first, with the
    sha256 of their UTF-8 text; `neighbours` are the nodes that the prediction draws on.
    """
    for row, node in enumerate(packs.nodes):
        near = slice(packs.neighbour_ptr[row], packs.neighbour_ptr[row + 1])
        own = slice(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
        yield {
            "id": ids[node],
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
                    packs.chunk_nodes[own],
                    packs.chunk_spans[own],
                    packs.chunk_weights[own],
                    packs.chunk_sha256[own],
                    strict=True,
                )
            ],
        }


def verify_lines(bundle: Bundle, data: str, path: Path, say: Say = print) -> None:
    """Check evidence against the texts of the data, then compute it again with the model.

    Every node of the data has one line, as `predict` writes them.

    Parameters
    ----------
    data : what was predicted, as in `predict`

    Raises
    ------
    UserError : names the node that is missing or there twice, or the span, weight or prediction
        that does not agree
    """
    lines, spans = _read(path), 0
    with opened(bundle, data, say) as client:
        ids, texts = client.data.ids(), client.data.texts()
        row_of = {name: row for row, name in enumerate(ids)}
        for line in lines:
            spans += _check_spans(line, row_of, texts, path)
        if lacking := row_of.keys() - {line["id"] for line in lines}:
            first, more = min(lacking, key=row_of.__getitem__), len(lacking) - 1
            rest = f" and {more:,} more" if more else ""
            raise UserError(
                f"{path}: expected evidence of all {len(ids):,} nodes of the data, found none of "
                f"{first!r}{rest}; lines were removed, or name the data that were predicted"
            )
        for start in range(0, len(lines), _BLOCK):
            block = lines[start : start + _BLOCK]
            nodes = torch.tensor([row_of[line["id"]] for line in block])
            again = evidence_lines(
                explained(bundle, client, nodes), ids, client.data.card.class_names
            )
            for line, expected in zip(block, again, strict=True):
                _compare(line, expected, path)
    say(f"evidence verified: {spans:,} spans of {len(lines):,} nodes, model {bundle.model_id}")


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, all of the form that `evidence_lines` gives them."""
    lines: list[dict[str, Any]] = []
    where = str(path)
    try:
        for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
            where = f"{path} line {number}"
            lines.append(_check_form(json.loads(text, object_pairs_hook=_without_repetition)))
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
    """Return a JSON object; of a key that stands twice, readers would each believe another."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{name!r} twice")
    return found


def _check_form(line: Any) -> dict[str, Any]:
    """Return a line after checking that it holds what `evidence_lines` writes, and no more.

    Raises
    ------
    ValueError : it does not
    """
    _check_fields(line, _LINE, "a line")
    for span in line["spans"]:
        _check_fields(span, _SPAN, "a span")
    for neighbour in line["neighbours"]:
        _check_fields(neighbour, _NEIGHBOUR, "a neighbour")
    for stage, shares in line["views"].items():
        if not isinstance(shares, dict) or not shares:
            raise ValueError(f"view {stage!r} without classes")
        _check_fields(shares, dict.fromkeys(shares, float), f"view {stage!r}")
    return line  # type: ignore[no-any-return]


def _check_fields(found: Any, kinds: Mapping[str, type], what: str) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"{what} that is no JSON object")
    if other := kinds.keys() ^ found.keys():
        name = min(other)
        raise ValueError(f"{what} {'with' if name in found else 'without'} {name!r}")
    for name, kind in kinds.items():
        value = found[name]
        # Exact types: true is no 1. A number may have lost its decimal point on the way.
        if type(value) is not kind and not (
            kind is float and type(value) is int and value in (0, 1)
        ):
            raise ValueError(f"{what} with {value!r:.40} as {name!r}")


def _check_spans(
    line: Mapping[str, Any], row_of: Mapping[str, int], texts: Sequence[str], path: Path
) -> int:
    """Compare the spans of a line with the source texts; return their number."""
    try:
        for span in line["spans"]:
            text = texts[row_of[span["id"]]][span["start"] : span["end"]]
            if sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != span["sha256"]:
                raise UserError(
                    f"{path}: node {line['id']!r}: expected the text that was selected in "
                    f"{span['id']!r}, characters {span['start']}-{span['end']}, found "
                    f"{text[:40]!r}; the source text or the evidence was altered"
                )
        return len(line["spans"]) + 0 * row_of[line["id"]]
    except KeyError as error:
        raise UserError(
            f"{path}: expected evidence of nodes of this graph, found {error}; name the data that "
            "were predicted"
        ) from None


def _compare(line: Mapping[str, Any], again: Mapping[str, Any], path: Path) -> None:
    """Compare a line with the one that the model gives.

    Raises
    ------
    UserError : they differ by more than rounding
    """
    found, expected = sorted(_numbers(line)), sorted(_numbers(again))
    count = Counter(key for key, _ in found)
    count.subtract(key for key, _ in expected)
    gaps = [  # NaN is a gap as large as any
        (inf if isnan(one - other) else abs(one - other), key)
        for (key, one), (_, other) in zip(found, expected, strict=False)
    ]
    fault = ""
    if line["model"] != again["model"]:
        fault = f"evidence of model {line['model']}"
    elif amiss := {key: more for key, more in count.items() if more}:
        # Also one that weighs nothing: a copy could take its place and be read instead.
        key, more = max(amiss.items(), key=lambda item: item[1])
        fault = (
            f"the {key[0]} of {key[-1]!r} too often" if more > 0 else f"no {key[0]} of {key[-1]!r}"
        )
    elif (worst := max(gaps))[0] > WEIGHT_TOLERANCE:
        gap, key = worst
        fault = f"a difference of {gap:.2g} in the {key[0]} of {key[-1]!r}"
    if fault:
        raise UserError(
            f"{path}: node {line['id']!r}: expected what model {again['model']} gives, found "
            f"{fault}; the evidence, the texts, the edges or the model were altered"
        )


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Yield every number of a line, after what it is of: an entry may be there twice."""
    for span in line["spans"]:
        yield ("weight", span["start"], span["end"], span["id"]), span["weight"]
    for neighbour in line["neighbours"]:
        yield ("gate", neighbour["hop"], neighbour["id"]), neighbour["gate"]
    for stage, shares in line["views"].items():
        for name, share in shares.items():
            yield ("share", stage, name), share
