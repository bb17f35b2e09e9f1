"""Evidence as JSON lines, one object per node: written with predictions, and checked later."""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import inf, isnan
from pathlib import Path
from typing import Any

import torch

from dance_flwr.dance.packs import Packs
from dance_flwr.dance.verification import WEIGHT_TOLERANCE
from dance_flwr.data.client_folder import Say
from dance_flwr.errors import UserError
from dance_flwr.prediction.bundle import Bundle
from dance_flwr.prediction.predicting import explained, opened

_BLOCK = 1024  # lines that are computed again at once


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

    Parameters
    ----------
    data : what was predicted, as in `predict`

    Raises
    ------
    UserError : names the node and the span, weight or prediction that does not agree
    """
    lines, spans = _read(path), 0
    with opened(bundle, data, say) as client:
        ids, texts = client.site.ids(), client.site.texts()
        row_of = {name: row for row, name in enumerate(ids)}
        for line in lines:
            spans += _check_spans(line, row_of, texts, path)
        for start in range(0, len(lines), _BLOCK):
            block = lines[start : start + _BLOCK]
            nodes = torch.tensor([row_of[line["id"]] for line in block])
            again = evidence_lines(
                explained(bundle, client, nodes), ids, client.site.card.class_names
            )
            for line, expected in zip(block, again, strict=True):
                _compare(line, expected, path)
    say(f"evidence verified: {spans:,} spans of {len(lines):,} nodes, model {bundle.model_id}")


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected evidence that `dance-flwr predict` wrote, found {error}"
        ) from None


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
    except (KeyError, TypeError) as error:
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
    try:
        found, expected = _numbers(line), _numbers(again)
        keys = found.keys() | expected.keys()
        gaps = {key: abs(found.get(key, 0.0) - expected.get(key, 0.0)) for key in keys}
        sizes = [[len(one[part]) for part in ("spans", "neighbours")] for one in (line, again)]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: node {line['id']!r}: expected evidence that `dance-flwr predict` wrote, "
            f"found {error}"
        ) from None
    if sizes[0] != sizes[1]:  # an entry that is there twice
        raise UserError(
            f"{path}: node {line['id']!r}: expected {sizes[1][0]} spans and {sizes[1][1]} "
            f"neighbours, found {sizes[0][0]} and {sizes[0][1]}; the evidence was altered"
        )
    # NaN is a gap as large as any.
    worst = max(gaps, key=lambda key: inf if isnan(gaps[key]) else gaps[key])
    if line.get("model") != again["model"] or not gaps[worst] <= WEIGHT_TOLERANCE:
        raise UserError(
            f"{path}: node {line['id']!r}: expected what model {again['model']} gives, found a "
            f"difference of {gaps[worst]:.2g} in {worst[0]} of {worst[-1]!r}; the evidence, the "
            "texts, the edges or the model were altered"
        )


def _numbers(line: Mapping[str, Any]) -> dict[tuple[Any, ...], float]:
    """Return every number of a line by what it is of."""
    spans = {("weight", s["start"], s["end"], s["id"]): s["weight"] for s in line["spans"]}
    gates = {("gate", n["hop"], n["id"]): n["gate"] for n in line["neighbours"]}
    views = {
        ("view", stage, name): share
        for stage, shares in line["views"].items()
        for name, share in shares.items()
    }
    return spans | gates | views
