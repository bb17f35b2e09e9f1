"""Verify the evidence packs of a run against the source texts and the model.

Each function names the first node that does not agree; `verify_packs` calls them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.paths import STATE
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import chunk_digests
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.pack import FUSED, PARTS, Packs
from dance_flwr.evidence.summaries.grounding import refusal
from dance_flwr.evidence.summaries.summary import Summaries, spans_of

# float32 weights that are recomputed on another device, or with another number of threads, differ
# in their last bits, as sums are taken in another order.
WEIGHT_TOLERANCE = 1e-4


def verify_sources(data: ClientData) -> list[str]:
    """Return the texts of a client's nodes, after checking every chunk against its digest.

    Raises
    ------
    UserError : a text was altered after the partition was prepared
    """
    texts = data.texts()
    digests = chunk_digests(texts, data.bank)
    wrong = np.flatnonzero((digests != data.chunk_sha256).any(axis=1))
    if len(wrong):
        node = int(np.searchsorted(data.bank.ptr, wrong[0], side="right")) - 1
        raise UserError(
            f"{data.folder}: node {data.ids()[node]!r}: expected the encoded text, found another; "
            "restore the text, or prepare the partition again"
        )
    return texts


@dataclass
class PackCounts:
    """What was verified of the packs of a client.

    Attributes
    ----------
    packs : all packs; spans : those compared with the source texts; recomputed : packs whose
        weights were recomputed; sentences : of their summaries
    by_round : number of packs of each round
    """

    packs: int = 0
    spans: int = 0
    recomputed: int = 0
    sentences: int = 0
    by_round: dict[int, int] = field(default_factory=dict)

    def line(self, fingerprint: str, sealed: bool) -> str:
        """Return in words what was verified and what was not."""
        text = (
            f"{counted(self.spans, 'marked passage')} read back from the source texts; of "
            f"{counted(self.packs, 'piece')} of evidence, one per node, {self.recomputed:,} "
            f"computed again by model {fingerprint}"
        )
        if self.sentences:
            text += f"; {counted(self.sentences, 'sentence')} of summaries checked against them"
        if rest := self.packs - self.recomputed:
            how = "as sealed at its end" if sealed else "not sealed, so nobody can vouch for it"
            text += f"; {rest:,} of models that a run does not keep: {how}"
        return text


def verify_packs(explainer: Explainer, folder: RunFolder, texts: list[str]) -> PackCounts:
    """Verify all packs that a client has of a run.

    Parameters
    ----------
    explainer : of the run's model
    folder : of the run at the client
    texts : what `verify_sources` returned

    Raises
    ------
    UserError : names the first span, weight or model that does not agree
    """
    data, counts = explainer.data, PackCounts()
    # Without the last state the core is not known, as an earlier state has another core.
    core = None
    if (folder.folder / STATE).is_file():
        stored = folder.load(data.device).core
        core = stored if stored.numel() else None  # empty: the state was lost
    for path in folder.all_packs():
        packs, final = Packs.load(path), path.stem == "final"
        if final and packs.model_id != explainer.model_id:
            raise UserError(
                f"{path}: expected packs of model {explainer.model_id}, found {packs.model_id}; "
                "they were altered"
            )
        verify_nodes(data, packs, path.name, core if final else None)
        verify_spans(data, packs, path.name, texts)
        verify_parts(packs, path.name)
        counts.packs += len(packs.nodes)
        counts.spans += len(packs.chunks)
        if not final:
            counts.by_round[int(path.stem.removeprefix("round-"))] = len(packs.nodes)
        # Why (decision 20): the weights of a pack can be recomputed only if its model selected all
        # of its evidence. Evidence that was frozen in an earlier round, or preselected by an
        # earlier difficulty, depends on models that nobody keeps.
        fresh = explainer.settings.text_refresh_every > 0 and packs.difficulty_round == packs.round
        if packs.model_id == explainer.model_id and (final or fresh):
            # Packs of a round read the training graph, final packs the whole one.
            verify_weights(explainer, packs, path.name, None if final else data.training_graph)
            counts.recomputed += len(packs.nodes)
        if final and (summaries := Summaries.load(folder.summaries_path)):
            counts.sentences += verify_summaries(packs, summaries, texts)
    return counts


def verify_nodes(data: ClientData, packs: Packs, where: str, core: Tensor | None = None) -> None:
    """Check that there is one pack per node, of the client's nodes, and of the whole core.

    Parameters
    ----------
    core : [K] int64 nodes that have packs, and no others; None = not known
    """
    nodes, counts = np.unique(packs.nodes, return_counts=True)
    fault, repeated = "", np.flatnonzero(counts > 1)
    if len(foreign := nodes[(nodes < 0) | (nodes >= data.num_nodes)]):
        fault = f"packs of nodes of the client, found one of node number {foreign[0]}"
    elif len(repeated):
        first = repeated[0]
        fault = f"one pack per node, found {counts[first]} of node number {nodes[first]}"
    elif core is not None and len(missing := np.setdiff1d(core.cpu().numpy(), nodes)):
        fault = f"packs of the last core, found none of node number {missing[0]}"
    elif core is not None and len(more := np.setdiff1d(nodes, core.cpu().numpy())):
        fault = f"packs of the last core, found one of node number {more[0]}"
    if fault:
        raise UserError(f"{where}: expected {fault}; the pack was altered")


def verify_spans(data: ClientData, packs: Packs, where: str, texts: list[str]) -> None:
    """Check that every span is a chunk of the client's bank and that its text has not changed."""
    known = (packs.chunk_spans == data.bank.spans[packs.chunks]).all(axis=1)
    known &= packs.chunk_nodes == data.table.node_of_chunk.cpu().numpy()[packs.chunks]
    known &= (packs.chunk_sha256 == data.chunk_sha256[packs.chunks]).all(axis=1)
    spans = zip(packs.chunk_nodes, packs.chunk_spans, packs.chunk_sha256, known, strict=True)
    for node, (start, end), digest, in_bank in spans:
        chunk = texts[node][start:end]
        if not in_bank or sha256(chunk.encode()).digest() != digest.tobytes():
            raise UserError(
                f"{where}: node {data.ids()[node]!r}, characters {start}-{end}: expected the text "
                f"that was selected, found {chunk[:40]!r}; the source text or the pack was altered"
            )


def verify_parts(packs: Packs, where: str) -> None:
    """Check, without a model, that what was read adds up to the prediction."""
    # In float64, so that the check adds no rounding of its own.
    fused = packs.probs[packs.stages.index(FUSED)].astype(np.float64)
    parts, scale = packs.parts.astype(np.float64), _scale(packs)
    of_neighbours, of_chunks = _neighbours(packs), _chunks(packs)
    classes = fused.shape[1]
    texts, labels = np.split(_totals(of_neighbours, len(fused))[:, 1:], [classes], axis=1)
    texts += _totals(of_chunks, len(fused))[:, 1:]
    gaps = {
        "probabilities": np.abs(packs.probs.sum(axis=2) - 1).max(axis=0, initial=0),
        "contributions": _distance(softmax(parts.sum(axis=1), axis=1), fused),
        "contributions of texts": _distance(texts, parts[:, PARTS.index("text")]) / scale,
        "contributions of labels": _distance(labels, parts[:, PARTS.index("labels")]) / scale,
    }
    _check(gaps, packs, where, "{} that add up")


def verify_weights(
    explainer: Explainer, packs: Packs, where: str, graph: LocalGraph | None = None
) -> None:
    """Recompute gates, chunks, predictions and their parts with the model and compare the packs.

    Parameters
    ----------
    graph : as in `Explainer.explain` when the packs were made
    """
    nodes = torch.as_tensor(packs.nodes, device=explainer.data.device)
    again = explainer.explain(nodes, graph)
    made_of = [(p.views, p.stages, p.own_share, p.temperature) for p in (packs, again)]
    if made_of[0] != made_of[1]:
        raise UserError(
            f"{where}: expected predictions {', '.join(again.stages)} with a share of "
            f"{again.own_share:g} of the client's own model, found {', '.join(packs.stages)} with "
            f"{packs.own_share:g}; the pack or the run's configuration was altered"
        )
    scale = _scale(again)
    gaps = {
        "neighbours": _largest_gap(_neighbours(packs), _neighbours(again), scale),
        "chunks": _largest_gap(_chunks(packs), _chunks(again), scale),
        "prediction": np.abs(packs.probs - again.probs).max(axis=(0, 2), initial=0),
        "contributions": np.abs(packs.parts - again.parts).max(axis=(1, 2), initial=0) / scale,
    }
    _check(gaps, packs, where, f"the {{}} of model {packs.model_id}")


def _check(gaps: Mapping[str, NDArray[Any]], packs: Packs, where: str, expected: str) -> None:
    """Refuse a gap above the tolerance; `expected` has a place for its name."""
    for what, gap in gaps.items():
        wrong = np.flatnonzero(~(gap <= WEIGHT_TOLERANCE))  # not ">", which is false for NaN
        if len(wrong):
            raise UserError(
                f"{where}: node number {packs.nodes[wrong[0]]}: expected {expected.format(what)}, "
                f"found a difference of {gap[wrong[0]]:.2g}; the pack or the model was altered"
            )


def _scale(packs: Packs) -> NDArray[np.float64]:
    """Return the size of the largest part of each pack, at least 1; [m]."""
    # Float32 sums of logits above 1 miss an absolute tolerance.
    return np.abs(packs.parts).max(axis=(1, 2), initial=1)  # type: ignore[no-any-return]


# [E, K] keys, the first is the row of the pack, and [E, V] values: the weight, then logits.
Entries = tuple[NDArray[np.int64], NDArray[np.float64]]


def _neighbours(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.neighbour_ptr))
    keys = rows, packs.neighbours, packs.neighbour_hops, packs.neighbour_labels
    logits = packs.neighbour_text_logits, packs.neighbour_label_logits
    return np.stack(keys, axis=1), np.column_stack([packs.neighbour_weights, *logits])


def _chunks(packs: Packs) -> Entries:
    rows = np.repeat(np.arange(len(packs.nodes)), np.diff(packs.chunk_ptr))
    keys = np.stack([rows, packs.chunks, packs.chunk_nodes], axis=1)
    return keys, np.column_stack([packs.chunk_weights, packs.chunk_logits])


def _totals(entries: Entries, size: int) -> NDArray[np.float64]:
    """Return the sums of the values of each row, [size, V]."""
    totals = np.zeros((size, entries[1].shape[1]))
    np.add.at(totals, entries[0][:, 0], entries[1])
    return totals


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(one - other).max(axis=1, initial=0)  # type: ignore[no-any-return]


def _largest_gap(old: Entries, new: Entries, scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest absolute difference of the values of each row, [m].

    Missing entries count as 0, NaN as inf; logits are divided by the row's scale.
    """
    keys, where = np.unique(np.concatenate([old[0], new[0]]), axis=0, return_inverse=True)
    gap, largest = np.zeros((len(keys), old[1].shape[1])), np.zeros(len(scale))
    np.add.at(gap, where.reshape(-1), np.concatenate([old[1], -new[1]]))
    gap[:, 1:] /= scale[keys[:, 0], None]
    gap = np.nan_to_num(np.abs(gap), nan=np.inf).max(axis=1, initial=0)
    np.maximum.at(largest, keys[:, 0], gap)
    return largest


def verify_summaries(packs: Packs, summaries: Summaries, texts: list[str]) -> int:
    """Check every sentence that a model wrote against its span, by its words.

    Returns
    -------
    number of sentences that a model wrote

    Raises
    ------
    UserError : names the first one that its span does not bear out
    """
    count = 0
    for row, node in enumerate(packs.nodes.tolist()):
        spans = spans_of(packs, row, texts)
        for sentence in summaries.of(packs, row, texts):
            # A quotation has no text of its own: `of` reads it from the span.
            if not sentence.author:
                continue
            count += 1
            if fault := refusal(sentence.text, spans[sentence.span - 1].text):
                raise UserError(
                    f"summary of node number {node}: expected a sentence that span {sentence.span} "
                    f"bears out, found one that fails on {fault}; it was altered"
                )
    return count
