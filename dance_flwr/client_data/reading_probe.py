"""The choice of a federation's reading: votes of its clients' validation nodes, by a linear probe.

Each client counts on how many of its validation nodes every reading is right where the paper's is
wrong, and the reverse. The sums decide for all clients, and most of them must gain: models that are
averaged read their texts and edges alike.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.sections import AGREEMENT, ATTENTION, NONE, PROBE, ReadingConfig, reading_of
from dance_flwr.data.graphs.codes import TRAIN, VAL
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError
from dance_flwr.nn.backbone import normalise
from dance_flwr.nn.propagation import propagated
from dance_flwr.nn.ragged import rows_at
from dance_flwr.seeding import generator

# Limits of what is read, so that the choice costs the same on a graph of any size.
# Why one hop (decision 18): two of them average foreign text away, and hide it from the probe.
_HOPS, _FAN_OUT = 1, 10
_MAX_TRAINING, MAX_PROBED = 4096, 1024  # nodes of a client that train a probe, and that vote
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
    validation = _sample(validation, MAX_PROBED, draws)
    return ProbeNodes(client, classes, train, validation, labels[train], labels[validation])


def is_settled(reading: ReadingConfig) -> bool:
    """Whether nothing is left for the federation to choose."""
    return PROBE not in (reading.text_pooling, reading.edge_gates)


def counted_votes(
    configured: ReadingConfig,
    nodes: ProbeNodes,
    read: Callable[[ReadingConfig], tuple[Tensor, LocalGraph]],
    path: Path,
) -> list[int]:
    """Return how many validation nodes each reading gains and loses against the paper's.

    The probe is ridge regression of the one-hot training labels on P x^, x^ the layer-normalised
    texts; nothing is trained in rounds.

    Parameters
    ----------
    configured : `text-pooling` and `edge-gates`, at least one of them "probe"
    read : returns t_u of all nodes, [n, d], and the training graph under a reading
    path : file of the votes, read again if it is there

    Returns
    -------
    [gained, lost] of every reading in the order of `readings`, the paper's zeros first
    """
    candidates = readings(configured)
    # Of an earlier run: the name of the file says that data and settings are the same.
    if (stored := _stored_votes(path, 2 * len(candidates))) is not None:
        return stored
    hits = torch.stack([_hits(nodes, *read(candidate)) for candidate in candidates])
    counts = torch.stack([(hits & ~hits[0]).sum(1), (hits[0] & ~hits).sum(1)], dim=1)
    votes: list[int] = counts.flatten().tolist()
    write_json(path, {"votes": votes, "nodes": len(nodes.validation)})
    return votes


def _stored_votes(path: Path, size: int) -> list[int] | None:
    try:
        votes = json.loads(path.read_text(encoding="utf-8"))["votes"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    sound = isinstance(votes, list) and len(votes) == size
    return votes if sound and all(type(n) is int and n >= 0 for n in votes) else None


def elect(configured: ReadingConfig, *votes: Sequence[int]) -> ReadingConfig:
    """Return the reading of a federation: the paper's, unless another one gains beyond chance.

    More clients must gain by it than lose, so that one client does not choose for all.

    Parameters
    ----------
    votes : `counted_votes` of every client, none where nobody may vote; or their sum, as of one

    Examples
    --------
    >>> asked = ReadingConfig(text_pooling="probe", edge_gates="none")
    >>> elect(asked, [0, 0, 9, 0]).text_pooling
    'agreement'
    >>> elect(asked, [0, 0, 9, 0], [0, 0, 1, 2]).text_pooling
    'attention'
    """
    by_reading = zip(*(zip(own[::2], own[1::2], strict=True) for own in votes), strict=True)
    best = 0, 0, 0
    for place, pairs in enumerate(by_reading):
        if sum((more > less) - (more < less) for more, less in pairs) > 0:
            gained, lost = map(sum, zip(*pairs, strict=True))
            best = max(best, (gained - lost, -place, gained + lost))
    gain, place, differing = best
    # Why (decision 18): of the nodes on which two probes differ, a gain within one standard error,
    # sqrt(gained + lost), is chance, and without evidence the paper's rules hold.
    return readings(configured)[-place if gain > differing**0.5 else 0]


def chosen_keys(reading: ReadingConfig) -> dict[str, str]:
    """Return the keys that a federation chooses, as its messages and its record name them."""
    return {"text-pooling": reading.text_pooling, "edge-gates": reading.edge_gates}


Reading = TypeVar("Reading", bound=ReadingConfig)


def with_choice(config: Reading, choice: Mapping[str, object]) -> Reading:
    """Return a configuration whose reading is the one that its federation chose.

    Parameters
    ----------
    choice : holds `chosen_keys`, or none of them where nothing was chosen yet; from a stranger

    Raises
    ------
    UserError : it is none of the readings that the configuration leaves open
    """
    if is_settled(config) or not choice.keys() & chosen_keys(config).keys():
        return config
    for reading in readings(config):
        if all(choice.get(key) == value for key, value in chosen_keys(reading).items()):
            return replace(config, text_pooling=reading.text_pooling, edge_gates=reading.edge_gates)
    stated = {key: choice.get(key) for key in chosen_keys(config)}
    raise UserError(
        f"expected a reading that the run's text-pooling = {config.text_pooling!r} and edge-gates "
        f"= {config.edge_gates!r} allow, found {stated!r:.200}"
    )


def readings(configured: ReadingConfig) -> list[ReadingConfig]:
    """Return the readings that a configuration leaves open, the paper's first."""
    gates = (NONE, AGREEMENT) if configured.edge_gates == PROBE else (configured.edge_gates,)
    texts = (
        (ATTENTION, AGREEMENT) if configured.text_pooling == PROBE else (configured.text_pooling,)
    )
    # Of the section alone, as the configuration of a run may be given.
    section = reading_of(configured)
    return [replace(section, text_pooling=t, edge_gates=g) for g in gates for t in texts]


@torch.no_grad()
def _hits(nodes: ProbeNodes, texts: Tensor, graph: LocalGraph) -> Tensor:
    """Return whether the probe is right on each validation node, at its best penalty; [v] bool."""
    # Without labelled nodes of both kinds no reading has hits, and the client has no vote.
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
    gram = gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.linalg.solve(gram, inputs.T @ targets)  # type: ignore[no-any-return]


def _sample(nodes: Tensor, limit: int, draws: torch.Generator) -> Tensor:
    if len(nodes) <= limit:
        return nodes
    return nodes[torch.randperm(len(nodes), generator=draws)[:limit].to(nodes.device)]


def _smoothed(texts: Tensor, graph: LocalGraph, nodes: Tensor, client: int) -> Tensor:
    """Return [P x^ || 1] of these nodes, [m, i]; more than ten neighbours are sampled.

    Reads the nodes' surroundings alone, block by block.
    """
    parts, draws = [], generator(0, "probe neighbours", client=client)
    for block in torch.split(nodes, _NODES_PER_BLOCK):
        ball = graph.around("gcn", block, _HOPS, _FAN_OUT, draws)
        hidden = normalise(rows_at(texts, ball.nodes))
        for step in ball.operators:
            hidden = propagated(step, hidden)
        parts.append(hidden)
    smooth = torch.cat(parts)
    # The column of ones is the intercept.
    return torch.cat([smooth, smooth.new_ones(len(smooth), 1)], dim=1)
