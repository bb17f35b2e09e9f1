"""The choice of a client's reading on its own validation nodes, by a linear probe."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.sections import AGREEMENT, ATTENTION, NONE, PROBE, ReadingConfig
from dance_flwr.data.graphs.graph import TRAIN, VAL
from dance_flwr.disk import write_json
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.ragged import rows_at
from dance_flwr.seeding import generator

# Limits of what is read, so that the choice costs the same on a graph of any size.
_HOPS, _FAN_OUT = 2, 10
_MAX_TRAINING, _MAX_VALIDATION = 4096, 1024
_NODES_PER_BLOCK = 512
_PENALTIES = (10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class ProbeNodes:
    """What every candidate's probe is fitted to and scored on.

    Attributes
    ----------
    client : its number, for the draws of neighbours
    classes : C
    train, validation : [m], [v] int64 labelled nodes
    train_labels, validation_labels : [m], [v] int64
    """

    client: int
    classes: int
    train: Tensor
    validation: Tensor
    train_labels: Tensor
    validation_labels: Tensor


def probe_nodes(labels: Tensor, split: Tensor, classes: int, client: int) -> ProbeNodes:
    """Draw at most 4096 labelled training and 1024 labelled validation nodes of a client.

    Parameters
    ----------
    labels : [n] int64 of all splits, -1 if unknown; those of test nodes are not read
    split : [n] uint8 codes
    """
    # Seed 0 and not that of the run: the choice is one of the client, the same in every run.
    draws = generator(0, "probe", client=client)
    train = torch.nonzero((split == TRAIN) & (labels >= 0)).flatten()
    validation = torch.nonzero((split == VAL) & (labels >= 0)).flatten()
    train = _sample(train, _MAX_TRAINING, draws)
    validation = _sample(validation, _MAX_VALIDATION, draws)
    return ProbeNodes(client, classes, train, validation, labels[train], labels[validation])


def probed(
    configured: ReadingConfig,
    nodes: ProbeNodes,
    read: Callable[[ReadingConfig], tuple[Tensor, LocalGraph]],
    path: Path,
) -> ReadingConfig:
    """Return the reading under which a linear probe classifies most validation nodes.

    The probe is ridge regression of the one-hot training labels on P^2 x^, x^ the layer-normalised
    texts; nothing is trained in rounds and nothing leaves the client. The paper's reading stays
    unless another one is right on more nodes by over one standard error, sqrt(gained + lost).

    Parameters
    ----------
    configured : `text-pooling` and `edge-gates`, at least one of them "probe"
    read : returns t_u of all nodes, [n, d], and the training graph under a reading
    path : file of the choice, with the hits of every candidate
    """
    candidates = list(_candidates(configured))
    chosen = _stored_choice(path)
    for candidate in candidates:
        # Of an earlier run: the name of the file says that data and settings are the same.
        if _named(candidate) == chosen:
            return candidate
    hits = [_hits(nodes, *read(candidate)) for candidate in candidates]
    best = choose(torch.stack(hits))
    rows = [{**_named(c), "hits": int(hit.sum())} for c, hit in zip(candidates, hits, strict=True)]
    content = {"chosen": _named(candidates[best]), "nodes": hits[0].numel(), "candidates": rows}
    write_json(path, content)
    return candidates[best]


def _stored_choice(path: Path) -> dict[str, str]:
    """Return the choice in this file; empty if there is none, or the file is damaged."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["chosen"])
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def choose(hits: Tensor) -> int:
    """Return the candidate with the most hits, or 0 if its gain over 0 is within chance.

    Parameters
    ----------
    hits : [candidates, nodes] bool, the paper's reading first
    """
    best = int(hits.sum(1).argmax())
    # Why (decision 18): of the nodes on which two probes differ, a gain within one standard error
    # is chance, and without evidence the paper's rules hold.
    gained, lost = int((hits[best] & ~hits[0]).sum()), int((hits[0] & ~hits[best]).sum())
    return best if gained - lost > (gained + lost) ** 0.5 else 0


def _named(reading: ReadingConfig) -> dict[str, str]:
    return {"text_pooling": reading.text_pooling, "edge_gates": reading.edge_gates}


def _candidates(configured: ReadingConfig) -> Iterator[ReadingConfig]:
    """Yield the readings to compare, the paper's first."""
    # The paper's first, as `choose` compares with the first candidate.
    gates = (NONE, AGREEMENT) if configured.edge_gates == PROBE else (configured.edge_gates,)
    texts = (
        (ATTENTION, AGREEMENT) if configured.text_pooling == PROBE else (configured.text_pooling,)
    )
    for gate in gates:
        for text in texts:
            yield replace(configured, text_pooling=text, edge_gates=gate)


@torch.no_grad()
def _hits(nodes: ProbeNodes, texts: Tensor, graph: LocalGraph) -> Tensor:
    """Return whether the probe is right on each validation node, at its best penalty; [v] bool."""
    # Without labelled nodes of both kinds no candidate has hits, and the paper's reading stays.
    if not len(nodes.train) or not len(nodes.validation):
        return torch.zeros(len(nodes.validation), dtype=torch.bool)
    smooth = _smoothed(texts, graph, torch.cat([nodes.train, nodes.validation]), nodes.client)
    inputs, targets = smooth[: len(nodes.train)], smooth[len(nodes.train) :]
    labels = F.one_hot(nodes.train_labels, nodes.classes).to(inputs)
    probes = [ridge(inputs, labels, penalty) for penalty in _PENALTIES]
    hits = torch.stack([(targets @ probe).argmax(1) == nodes.validation_labels for probe in probes])
    # Each candidate at its best penalty: none is judged by one that suits another.
    return hits[hits.sum(1).argmax()].cpu()


def ridge(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """W = (X^T X + penalty I)^-1 X^T Y; [m, i], [m, C] -> [i, C]."""
    gram = inputs.T @ inputs
    gram = gram + penalty * torch.eye(len(gram)).to(gram)
    return torch.linalg.solve(gram, inputs.T @ targets)  # type: ignore[no-any-return]


def _sample(nodes: Tensor, limit: int, draws: torch.Generator) -> Tensor:
    """Return at most `limit` of the nodes, drawn without repetition; [m] int64."""
    if len(nodes) <= limit:
        return nodes
    return nodes[torch.randperm(len(nodes), generator=draws)[:limit].to(nodes.device)]


def _smoothed(texts: Tensor, graph: LocalGraph, nodes: Tensor, client: int) -> Tensor:
    """Return [P^2 x^ || 1] of these nodes, [m, i]; more than ten neighbours are sampled.

    Reads the nodes' surroundings alone, block by block.
    """
    parts, draws = [], generator(0, "probe neighbours", client=client)
    for block in torch.split(nodes, _NODES_PER_BLOCK):
        ball = graph.around("gcn", block, _HOPS, _FAN_OUT, draws)
        hidden = normalise(rows_at(texts, ball.nodes))
        for step in ball.operators:
            hidden = step @ hidden
        parts.append(hidden)
    smooth = torch.cat(parts)
    # The column of ones is the intercept.
    return torch.cat([smooth, smooth.new_ones(len(smooth), 1)], dim=1)
