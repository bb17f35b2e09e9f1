"""Evidence packs as JSON lines, one object per node: written with predictions, verified later."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import inf, isnan
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import best_match

from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import WEIGHT_TOLERANCE

_LINES_PER_BLOCK = 1024  # recomputed at once


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        # An unknown entry would be shown without having been verified.
        "additionalProperties": False,
    }


_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
_NUMBER = {"type": "number", "minimum": -10, "maximum": 10}  # weights and probabilities
_SHARES = {"type": "object", "minProperties": 1, "additionalProperties": _NUMBER}
_NEIGHBOUR = _object(id=_TEXT, hop=_INTEGER, gate=_NUMBER)
_SPAN = _object(id=_TEXT, start=_INTEGER, end=_INTEGER, weight=_NUMBER, sha256=_TEXT)
_LINE = _object(
    id=_TEXT,
    bundle=_TEXT,
    model=_TEXT,
    views={"type": "object", "additionalProperties": _SHARES},
    neighbours={"type": "array", "items": _NEIGHBOUR},
    spans={"type": "array", "items": _SPAN},
)
# JSON Schema takes 1.0 for an integer, which cannot index a text.
_INTEGERS = Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: type(value) is int
)
_FORM = validators.extend(Draft202012Validator, type_checker=_INTEGERS)(_LINE)


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
    """Compare evidence with the texts of the data, then compute it again with the model.

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
    UserError : names the node that is missing or duplicated, or the span, weight or prediction that
        does not agree
    """
    data = explainer.data
    ids, texts = data.ids(), data.texts()
    row_of = {name: row for row, name in enumerate(ids)}
    # The texts first, so that an altered text is reported as such, before the model runs.
    spans = sum(_check_spans(line, row_of, texts, path) for line in lines)
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
            _compare(line, expected, path)
    return spans


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read lines of evidence and check the form of each.

    Raises
    ------
    UserError : a line has another form, or there is no line
    """
    lines: list[dict[str, Any]] = []
    where = str(path)
    try:
        for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
            where = f"{path} line {number}"
            line = json.loads(text, object_pairs_hook=_without_repetition)
            if error := best_match(_FORM.iter_errors(line)):
                raise ValueError(f"at {error.json_path}: {error.message:.100}")
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
    """Return a JSON object without duplicate keys."""
    # Why (decision 20): readers differ in which of two equal keys they keep, so that what was
    # verified may not be what another program shows.
    values = dict(pairs)
    if len(values) < len(pairs):
        name = next(name for name, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{name!r} twice")
    return values


def _check_spans(
    line: Mapping[str, Any], row_of: Mapping[str, int], texts: Sequence[str], path: Path
) -> int:
    """Compare the spans of a line with the source texts; return their number."""
    try:
        for span in line["spans"]:
            text = texts[row_of[span["id"]]][span["start"] : span["end"]]
            # JSON can hold a single surrogate, which strict UTF-8 cannot.
            if sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != span["sha256"]:
                raise UserError(
                    f"{path}: node {line['id']!r}: expected the text that was selected in "
                    f"{span['id']!r}, characters {span['start']}-{span['end']}, found "
                    f"{text[:40]!r}; the source text or the evidence was altered"
                )
        row_of[line["id"]]  # a KeyError names it
        return len(line["spans"])
    except KeyError as error:
        raise UserError(
            f"{path}: expected evidence of nodes of this graph, found {error}; name the data that "
            "were predicted"
        ) from None


def _compare(line: Mapping[str, Any], expected: Mapping[str, Any], path: Path) -> None:
    """Compare a line with the line that the model gives."""
    actual, wanted = sorted(_numbers(line)), sorted(_numbers(expected))
    surplus = Counter(key for key, _ in actual)
    surplus.subtract(key for key, _ in wanted)
    gaps = [  # NaN differs from every number
        (inf if isnan(a - b) else abs(a - b), key)
        # `surplus` reports lists of different lengths.
        for (key, a), (_, b) in zip(actual, wanted, strict=False)
    ]
    fault = ""
    if other := next((key for key in ("model", "bundle") if line[key] != expected[key]), ""):
        fault = f"evidence of {other} {line[other]:.64}"
    # Why (decision 20): an entry of weight 0 changes no sum, but a reader of the file would take it
    # for evidence. So entries are compared as a multiset, not by their weights alone.
    elif amiss := {key: count for key, count in surplus.items() if count}:
        key, count = max(amiss.items(), key=lambda item: item[1])
        fault = (
            f"the {key[0]} of {key[-1]!r} too often" if count > 0 else f"no {key[0]} of {key[-1]!r}"
        )
    elif (worst := max(gaps))[0] > WEIGHT_TOLERANCE:
        gap, key = worst
        fault = f"a difference of {gap:.2g} in the {key[0]} of {key[-1]!r}"
    if fault:
        raise UserError(
            f"{path}: node {line['id']!r}: expected what model {expected['model']} gives, found "
            f"{fault}; the evidence, the texts, the edges or the model were altered"
        )


def _numbers(line: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Yield every number of a line with its key; equal keys mean that an entry is duplicated."""
    for span in line["spans"]:
        yield ("weight", span["start"], span["end"], span["id"]), span["weight"]
    for neighbour in line["neighbours"]:
        yield ("gate", neighbour["hop"], neighbour["id"]), neighbour["gate"]
    for stage, shares in line["views"].items():
        for name, share in shares.items():
            yield ("share", stage, name), share
