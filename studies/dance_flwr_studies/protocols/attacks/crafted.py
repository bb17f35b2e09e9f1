"""Start models that a malicious server crafts, so that a sum of updates gives single rows.

The first layer of the graph convolutional network reads a row x of texts per node, averaged over
the node's neighbours. Its unit j is active where w_j x + b_j > 0, and its gradient is a sum of the
rows at which it is active. All units here lead to one and the same output, so that a row has the
same factor in the gradient of each.

Bins (Fowl et al. 2022, "Robbing the Fed"): all w_j are the same, and b_j steps through the
quantiles of w x. Where a single row is in a bin, the difference of two consecutive gradients is
that row. Traps (Boenisch et al. 2021, "When the Curious Abandon Honesty"): w_j are random, and b_j
is such that a unit is active at about one row of all clients. Deviations: the weights behind the
first layer are so small that gradients are below the 1e-8 that Adam adds to their size before it
divides by it, so that an update is proportional to its gradient; the server knows the distribution
of w x.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.errors import UserError
from dance_flwr.federation.client.admission import Received, check_start, shows_single_row
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.node_config import NodeTerms
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import generator
from dance_flwr_studies.protocols.attacks.observations import mean_state

WEIGHT, BIAS = "backbone.first.lin.weight", "backbone.first.bias"
NEXT, HEAD = "backbone.second.lin.weight", "head_graph.weight"
# A row counts as read where the cosine with a candidate exceeds this. Rows that are as near to the
# row of another node do not count: texts of the same kind would do instead.
COSINE = 0.999
_SMALL = 3e-5
_VEIL = 0.3  # length of what veiled bins add to unit weights: cosines of 0.92, below 0.99

State = dict[str, Tensor]
Craft = Callable[[Mapping[str, Tensor], Tensor], State]


def bins(state: Mapping[str, Tensor], rows: Tensor) -> State:
    """Return a model of equal rows w and biases in steps."""
    width, text_dim = state[WEIGHT].shape
    direction = _directions(1, text_dim).expand(width, -1)
    # About one row in a bin; where there are more rows than bins, those of the upper tail.
    levels = 1 - torch.arange(width, 0, -1) / max(width, len(rows))
    return _crafted(state, direction, torch.quantile(rows @ direction[0], levels))


def traps(state: Mapping[str, Tensor], rows: Tensor) -> State:
    """Return a model of random rows whose units are active at one of N rows; see `bins`."""
    directions = _directions(*state[WEIGHT].shape)
    return _crafted(state, directions, torch.quantile(rows @ directions.T, 1 - 1 / len(rows), 0))


def _directions(number: int, text_dim: int) -> Tensor:
    return F.normalize(torch.randn(number, text_dim, generator=generator(0, "crafted")), dim=1)


def _crafted(state: Mapping[str, Tensor], weight: Tensor, level: Tensor) -> State:
    new = {name: value.clone() for name, value in state.items()}
    new |= {WEIGHT: weight.clone(), BIAS: -level, NEXT: torch.zeros_like(new[NEXT])}
    new[NEXT][0] = _SMALL
    new[HEAD] = _SMALL * torch.randn(new[HEAD].shape, generator=generator(0, "crafted head"))
    return new


def veiled_bins(state: Mapping[str, Tensor], rows: Tensor) -> State:
    """Return `bins` whose rows differ in the directions in which the texts vary least.

    An adaptive attacker: weights are less parallel than a node refuses, and outputs nearly are.
    """
    new = bins(state, rows)
    _, vectors = torch.linalg.eigh(torch.cov(rows.T))  # the least variance comes first
    low = vectors[:, : max(1, vectors.size(1) // 4)]
    veil = torch.randn(len(new[WEIGHT]), low.size(1), generator=generator(0, "veil")) @ low.T
    new[WEIGHT] = new[WEIGHT] + _VEIL * F.normalize(veil, dim=1)
    return new


def rows_read(start: Mapping[str, Tensor], seen: Mapping[str, Tensor], rows: Tensor) -> int:
    """Return how many of the rows [N, d] the update from `start` to `seen` shows.

    Candidates are the updates of all units, and their differences in the order of the biases.
    """
    change = (seen[WEIGHT] - start[WEIGHT]).cpu().double()
    change = change[start[BIAS].cpu().argsort()]
    return _matched(torch.cat([change, change.diff(dim=0)]), rows)


def _matched(candidates: Tensor, rows: Tensor) -> int:
    cosines = F.normalize(candidates.double(), dim=1) @ F.normalize(rows.double(), dim=1).T
    best, row = cosines.abs().max(dim=1)
    return len(set(row[best > COSINE].tolist()))


HONEST, GUESS = "the run's seed", "guess"
CRAFTS: dict[str, Craft] = {
    HONEST: lambda state, rows: dict(state),
    "bins": bins,
    "veiled bins": veiled_bins,
    "traps": traps,
}


def measure_crafted(clients: Sequence[Client]) -> dict[str, Any]:
    """Return how many labelled rows of all clients the sum of one round shows, by start model.

    Returns
    -------
    "labelled", the number of these rows without those that have a near-duplicate, and by name of
    the start model the rows that are read: without the checks of a node, with them in round 1, and
    with them later. "guess" has rows of other nodes in the place of what the sum shows
    """
    # What such a server asks for: one step, and nothing random in it.
    config = replace(clients[0].config, local_epochs=1, weight_decay=0.0, dropout=0.0)
    # Only under masks does a client look at what its update shows.
    config = replace(config, privacy=replace(config.privacy, secure_aggregation=True))
    clients = [Client(client.data, config) for client in clients]
    model, data = clients[0].model, clients[0].data
    assert isinstance(model, PlainModel)
    shape = shape_of(data.text_dim, len(data.card.class_names), config)
    seeds = initial_model(shape, config).state_dict()
    every = torch.cat([c.data.inputs(c.data.graph, model.backbone).float().cpu() for c in clients])
    labelled = torch.cat([client.data.train_labels.cpu() >= 0 for client in clients])
    unit = F.normalize(every, dim=1)
    labelled &= ~((unit @ unit.T).fill_diagonal_(0) > COSINE).any(dim=1)
    rows, others = every[labelled], every[~labelled]
    guesses = others[torch.randperm(len(others), generator=generator(0, "guess"))]
    guessed = _matched(guesses[: 2 * len(seeds[WEIGHT]) - 1], rows)
    counts: dict[str, Any] = {"labelled": len(rows), GUESS: [guessed] * 3}
    for name, craft in CRAFTS.items():
        start = craft(seeds, every)
        uploads = []
        for client in clients:
            state, _ = client.train(start, RoundInfo("crafted", 1, model_fingerprint(start)))
            uploads.append({key: value.cpu() for key, value in state.items()})
        # Whoever notices that its update shows a row leaves the round out.
        sent = [
            start if shows_single_row(client, start, upload) else upload
            for client, upload in zip(clients, uploads, strict=True)
        ]
        weights = [client.weight for client in clients]
        free, later = (rows_read(start, mean_state(u, weights), rows) for u in (uploads, sent))
        counts[name] = [free, 0 if _refused(clients, start) else later, later]
    return counts


def _refused(clients: Sequence[Client], start: Mapping[str, Tensor]) -> bool:
    try:
        for client in clients:
            check_start(client, Received(start, ""), 1, NodeTerms.max_change)
    except UserError:
        return True
    return False
