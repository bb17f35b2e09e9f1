"""Evidence packs as text a person can read, and their verification against source texts and model."""

from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.dance.algorithm import explain
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.packs import Packs
from dance_flwr.dance.state import RunFolder
from dance_flwr.dance.summaries import ExtractiveSummariser, Summariser
from dance_flwr.data.site import LocalGraph, Site, chunk_digests
from dance_flwr.disk import atomic_file
from dance_flwr.errors import UserError

# Weights recomputed on another device or thread count differ in the last bits.
WEIGHT_TOLERANCE = 1e-4


def render(site: Site, packs: Packs, row: int, summariser: Summariser | None = None) -> str:
    """Return one pack as text: prediction, gates by hop, and every source text with its selected
    spans in ⟦ ⟧.
    """
    ids, texts = site.ids(), site.texts()
    near = slice(packs.neighbour_ptr[row], packs.neighbour_ptr[row + 1])
    far = slice(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
    spans: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for node, (start, end), weight in zip(
        packs.chunk_nodes[far], packs.chunk_spans[far], packs.chunk_weights[far], strict=True
    ):
        spans[int(node)].append((int(start), int(end), float(weight)))
    chunks = [texts[node][start:end] for node in spans for start, end, _ in spans[node]]
    weights = [weight for node in spans for _, _, weight in spans[node]]
    summary = (summariser or ExtractiveSummariser()).summarise(chunks, weights)
    label, known = site.card.class_names[packs.predicted[row]], site.train_labels.tolist()
    lines = [
        f"Evidence pack of node {ids[packs.nodes[row]]!r}, client {site.card.client}, round {packs.round}",
        f"model       {packs.model_id}",
        f"prediction  {label} (confidence {packs.confidence[row]:.3f})",
        f"summary     {summary}",
        "",
        "source texts, chosen spans marked ⟦weight: text⟧",
    ]
    for node, hop, gate in zip(
        packs.neighbours[near],
        packs.neighbour_hops[near],
        packs.neighbour_weights[near],
        strict=True,
    ):
        seen = (
            f"  training label {site.card.class_names[known[node]]}"
            if hop and known[node] >= 0
            else ""
        )
        lines += [
            "",
            f"hop {hop}  gate {gate:.3f}  node {ids[node]!r}{seen}",
            _marked(texts[node], spans[int(node)]),
        ]
    return "\n".join(lines) + "\n"


def _marked(text: str, spans: list[tuple[int, int, float]]) -> str:
    """Return `text` with each span wrapped; the text itself is not changed."""
    parts, at = [], 0
    for start, end, weight in sorted(spans):
        parts += [text[at:start], f"⟦{weight:.3f}: {text[start:end]}⟧"]
        at = end
    return "".join([*parts, text[at:]])


def most_telling(packs: Packs) -> int:
    """Return the row of the most confident pack that draws on a neighbour, else of the most
    confident one.
    """
    return int(np.argmax(packs.confidence + (np.diff(packs.neighbour_ptr) > 1)))


def write_example(store: RunFolder, site: Site, packs: Packs) -> Path | None:
    """Write the most telling pack as text, in the client's own folder."""
    if not len(packs.nodes):
        return None
    path = store.evidence_folder / "example.txt"
    with atomic_file(path) as file:
        file.write(render(site, packs, most_telling(packs)).encode())
    return path


@dataclass
class Verified:
    """What was checked: packs, spans against the source texts, packs whose weights were recomputed."""

    packs: int = 0
    spans: int = 0
    recomputed: int = 0


def verify_sources(site: Site) -> tuple[list[str], list[str]]:
    """Return (ids, texts) after checking every chunk of every text against its digest.

    Raises
    ------
    UserError : a text was altered after the partition was made
    """
    ids, texts = site.ids(), site.texts()
    found = chunk_digests(texts, site.bank)
    wrong = np.flatnonzero((found != site.chunk_sha256).any(axis=1))
    if len(wrong):
        node = int(np.searchsorted(site.bank.ptr, wrong[0], side="right")) - 1
        raise UserError(
            f"{site.folder}: node {ids[node]!r}: expected the text that was encoded, found another"
        )
    return ids, texts


def verify_spans(site: Site, packs: Packs, where: str, texts: tuple[list[str], list[str]]) -> None:
    """Check that every span is a chunk of the client's bank and still reads as it did when it was
    selected.

    Raises
    ------
    UserError : names the node and the span
    """
    ids, sources = texts
    known = (packs.chunk_spans == site.bank.spans[packs.chunks]).all(axis=1)
    known &= packs.chunk_nodes == site.table.node_of_chunk.cpu().numpy()[packs.chunks]
    known &= (packs.chunk_sha256 == site.chunk_sha256[packs.chunks]).all(axis=1)
    found = zip(packs.chunk_nodes, packs.chunk_spans, packs.chunk_sha256, known, strict=True)
    for node, (start, end), digest, banked in found:
        chunk = sources[node][start:end]
        if not banked or sha256(chunk.encode()).digest() != digest.tobytes():
            raise UserError(
                f"{where}: node {ids[node]!r}, characters {start}-{end}: expected the text that was selected, found "
                f"{chunk[:40]!r}; the source text or the pack was altered"
            )


def verify_weights(
    site: Site,
    packs: Packs,
    where: str,
    model: DanceModel,
    settings: DanceConfig,
    graph: LocalGraph,
) -> None:
    """Recompute gates, chunks and predictions with the model and compare.

    Parameters
    ----------
    graph : the graph on which the packs were selected

    Raises
    ------
    UserError : names the node whose pack does not follow from the model
    """
    nodes = torch.as_tensor(packs.nodes, device=site.device)
    again = explain(model, site, nodes, settings, packs.round, packs.model_id, graph)
    gaps = {
        "neighbour weights": _largest_gap(_neighbours(packs), _neighbours(again), len(nodes)),
        "chunk weights": _largest_gap(_chunks(packs), _chunks(again), len(nodes)),
        "confidence": np.abs(packs.confidence - again.confidence),
        "prediction": (packs.predicted != again.predicted).astype(float),
    }
    for what, gap in gaps.items():
        wrong = np.flatnonzero(~(gap <= WEIGHT_TOLERANCE))  # not ">": NaN is a difference too
        if len(wrong):
            raise UserError(
                f"{where}: node number {packs.nodes[wrong[0]]}: expected the {what} of model {packs.model_id}, found a "
                f"difference of {gap[wrong[0]]:.2g}; the pack or the model was altered"
            )


# [E, 3] keys (row, member, its hop or owner) and [E] weights.
Entries = tuple[NDArray[np.int64], NDArray[np.float32]]


def _neighbours(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.neighbour_ptr))
    return np.stack([rows, packs.neighbours, packs.neighbour_hops], axis=1), packs.neighbour_weights


def _chunks(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.chunk_ptr))
    return np.stack([rows, packs.chunks, packs.chunk_nodes], axis=1), packs.chunk_weights


def _largest_gap(old: Entries, new: Entries, size: int) -> NDArray[np.float64]:
    """Return the largest absolute difference of each row's weights, missing ones count as 0, NaN as
    inf; [size].
    """
    keys, where = np.unique(np.concatenate([old[0], new[0]]), axis=0, return_inverse=True)
    gap, largest = np.zeros(len(keys)), np.zeros(size)
    np.add.at(gap, where.reshape(-1), np.concatenate([old[1], -new[1]]))
    np.maximum.at(largest, keys[:, 0], np.nan_to_num(np.abs(gap), nan=np.inf))
    return largest
