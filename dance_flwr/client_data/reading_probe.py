"""The choice of a client's reading on its own validation nodes, by a linear probe."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import AGREEMENT, ATTENTION, NONE, PROBE, ReadingConfig
from dance_flwr.data.card import SiteCard
from dance_flwr.data.graphs.graph import VAL
from dance_flwr.disk import write_json
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.ragged import rows_at
from dance_flwr.seeding import generator

_HOPS, _FAN_OUT = 2, 10
_MOST_TRAINING, _MOST_VALIDATION = 4096, 1024
_NODES_PER_BLOCK = 512
_PENALTIES = (10.0, 100.0, 1000.0)


class Readable(Protocol):
    """What the probe reads of a `ClientData`."""

    @property
    def card(self) -> SiteCard:
        """Which client it is, and the classes."""
        ...

    @property
    def labels(self) -> Tensor:
        """[n] int64 labels of all splits, -1 if unknown."""
        ...

    @property
    def train_labels(self) -> Tensor:
        """[n] int64 labels of training nodes, -1 elsewhere."""
        ...

    @property
    def split(self) -> Tensor:
        """[n] uint8 split of every node."""
        ...

    @property
    def table(self) -> TextTable:
        """The texts under a reading."""
        ...

    @property
    def training_graph(self) -> LocalGraph:
        """The graph for training, with the edge weights of a reading."""
        ...


def probed(
    asked: ReadingConfig, open_as: Callable[[ReadingConfig], Readable], path: Path
) -> ReadingConfig:
    """Return the reading under which a linear probe classifies most validation nodes.

    The probe is ridge regression of the one-hot training labels on P^2 x^, x^ the layer-normalised
    texts; nothing is trained in rounds and nothing leaves the client. The paper's reading stays
    unless another one is right on more nodes by over one standard error, sqrt(gained + lost).

    Parameters
    ----------
    asked : `text-pooling` and `edge-gates`, at least one of them "probe"
    open_as : opens the client under a reading
    path : where the choice is kept, with the hits of every candidate
    """
    candidates = list(_candidates(asked))
    kept = _kept(path)
    known = [candidate for candidate in candidates if _named(candidate) == kept]
    if known:
        return known[0]
    hits = [_hits(open_as(candidate)) for candidate in candidates]
    best = choose(torch.stack(hits))
    found = [{**_named(c), "hits": int(hit.sum())} for c, hit in zip(candidates, hits, strict=True)]
    path.parent.mkdir(exist_ok=True)
    content = {"chosen": _named(candidates[best]), "nodes": hits[0].numel(), "candidates": found}
    write_json(path, content)
    return candidates[best]


def _kept(path: Path) -> dict[str, str]:
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
    gained, lost = int((hits[best] & ~hits[0]).sum()), int((hits[0] & ~hits[best]).sum())
    return best if gained - lost > (gained + lost) ** 0.5 else 0


def _named(reading: ReadingConfig) -> dict[str, str]:
    return {"text_pooling": reading.text_pooling, "edge_gates": reading.edge_gates}


def _candidates(asked: ReadingConfig) -> Iterator[ReadingConfig]:
    """Yield the readings to compare, the paper's first."""
    gates = (NONE, AGREEMENT) if asked.edge_gates == PROBE else (asked.edge_gates,)
    texts = (ATTENTION, AGREEMENT) if asked.text_pooling == PROBE else (asked.text_pooling,)
    for gate in gates:
        for text in texts:
            yield replace(asked, text_pooling=text, edge_gates=gate)


@torch.no_grad()
def _hits(data: Readable) -> Tensor:
    """Return whether the probe is right on each validation node, at its best penalty; [v] bool."""
    draws = generator(0, "probe", client=data.card.client)
    known = torch.nonzero(data.train_labels >= 0).flatten()
    asked = torch.nonzero((data.split == VAL) & (data.labels >= 0)).flatten()
    known, asked = _some(known, _MOST_TRAINING, draws), _some(asked, _MOST_VALIDATION, draws)
    if not len(known) or not len(asked):
        return torch.zeros(len(asked), dtype=torch.bool)
    smooth = _smoothed(data, torch.cat([known, asked]))
    inputs, targets = smooth[: len(known)], smooth[len(known) :]
    labels = F.one_hot(data.labels[known], len(data.card.class_names)).to(inputs)
    probes = [ridge(inputs, labels, penalty) for penalty in _PENALTIES]
    hits = torch.stack([(targets @ probe).argmax(1) == data.labels[asked] for probe in probes])
    return hits[hits.sum(1).argmax()].cpu()


def ridge(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """W = (X^T X + penalty I)^-1 X^T Y; [m, i], [m, C] -> [i, C]."""
    gram = inputs.T @ inputs
    gram = gram + penalty * torch.eye(len(gram)).to(gram)
    return torch.linalg.solve(gram, inputs.T @ targets)  # type: ignore[no-any-return]


def _some(nodes: Tensor, most: int, draws: torch.Generator) -> Tensor:
    """Return at most `most` of the nodes, drawn without repetition; [m] int64."""
    if len(nodes) <= most:
        return nodes
    return nodes[torch.randperm(len(nodes), generator=draws)[:most].to(nodes.device)]


def _smoothed(data: Readable, nodes: Tensor) -> Tensor:
    """Return [P^2 x^ || 1] of these nodes, [m, i]; more than ten neighbours are sampled.

    Reads the nodes' surroundings alone, block by block.
    """
    graph, texts, parts = data.training_graph, data.table.nodes, []
    draws = generator(0, "probe neighbours", client=data.card.client)
    for block in torch.split(nodes, _NODES_PER_BLOCK):
        ball = graph.around("gcn", block, _HOPS, _FAN_OUT, draws)
        hidden = normalise(rows_at(texts, ball.nodes))
        for step in ball.operators:
            hidden = step @ hidden
        parts.append(hidden)
    smooth = torch.cat(parts)
    return torch.cat([smooth, smooth.new_ones(len(smooth), 1)], dim=1)
