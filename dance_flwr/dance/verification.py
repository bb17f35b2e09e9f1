"""Verification of evidence packs against the source texts and the model."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import explain
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.packs import Packs
from dance_flwr.data.local_graph import LocalGraph
from dance_flwr.data.site import Site, chunk_digests
from dance_flwr.errors import UserError

# Weights recomputed on another device or thread count differ in the last bits.
WEIGHT_TOLERANCE = 1e-4


@dataclass
class VerificationCounts:
    """Numbers of packs, of spans compared with the source texts, and of packs recomputed."""

    packs: int = 0
    spans: int = 0
    recomputed: int = 0


def verify_sources(site: Site) -> tuple[list[str], list[str]]:
    """Check every chunk of every text against its digest; return (ids, texts).

    Raises
    ------
    UserError : a text was altered after the partition was prepared
    """
    ids, texts = site.ids(), site.texts()
    digests = chunk_digests(texts, site.bank)
    wrong = np.flatnonzero((digests != site.chunk_sha256).any(axis=1))
    if len(wrong):
        node = int(np.searchsorted(site.bank.ptr, wrong[0], side="right")) - 1
        raise UserError(
            f"{site.folder}: node {ids[node]!r}: expected the encoded text, found another; "
            "restore the text, or prepare the partition again"
        )
    return ids, texts


def verify_spans(site: Site, packs: Packs, where: str, texts: tuple[list[str], list[str]]) -> None:
    """Check that every span is a chunk of the client's bank and that its text has not changed.

    Raises
    ------
    UserError : names the node and the span
    """
    ids, sources = texts
    known = (packs.chunk_spans == site.bank.spans[packs.chunks]).all(axis=1)
    known &= packs.chunk_nodes == site.table.node_of_chunk.cpu().numpy()[packs.chunks]
    known &= (packs.chunk_sha256 == site.chunk_sha256[packs.chunks]).all(axis=1)
    spans = zip(packs.chunk_nodes, packs.chunk_spans, packs.chunk_sha256, known, strict=True)
    for node, (start, end), digest, in_bank in spans:
        chunk = sources[node][start:end]
        if not in_bank or sha256(chunk.encode()).digest() != digest.tobytes():
            raise UserError(
                f"{where}: node {ids[node]!r}, characters {start}-{end}: expected the text that "
                f"was selected, found {chunk[:40]!r}; the source text or the pack was altered"
            )


def verify_weights(
    site: Site,
    packs: Packs,
    where: str,
    model: DanceModel,
    settings: DanceConfig,
    graph: LocalGraph,
) -> None:
    """Recompute gates, chunks and predictions with the model and compare them with the packs.

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
        wrong = np.flatnonzero(~(gap <= WEIGHT_TOLERANCE))  # not ">", which is false for NaN
        if len(wrong):
            raise UserError(
                f"{where}: node number {packs.nodes[wrong[0]]}: expected the {what} of model "
                f"{packs.model_id}, found a difference of {gap[wrong[0]]:.2g}; the pack or the "
                "model was altered"
            )


# [E, 3] keys (row, member, hop or owner of the member) and [E] weights.
Entries = tuple[NDArray[np.int64], NDArray[np.float32]]


def _neighbours(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.neighbour_ptr))
    return np.stack([rows, packs.neighbours, packs.neighbour_hops], axis=1), packs.neighbour_weights


def _chunks(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.chunk_ptr))
    return np.stack([rows, packs.chunks, packs.chunk_nodes], axis=1), packs.chunk_weights


def _largest_gap(old: Entries, new: Entries, size: int) -> NDArray[np.float64]:
    """Return the largest absolute difference of the weights of each row, [size].

    Missing weights count as 0, NaN as inf.
    """
    keys, where = np.unique(np.concatenate([old[0], new[0]]), axis=0, return_inverse=True)
    gap, largest = np.zeros(len(keys)), np.zeros(size)
    np.add.at(gap, where.reshape(-1), np.concatenate([old[1], -new[1]]))
    np.maximum.at(largest, keys[:, 0], np.nan_to_num(np.abs(gap), nan=np.inf))
    return largest
