"""A client's own model beside the global one: the share of each in what the client deploys."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.config.sections import PERSONAL
from dance_flwr.nn.calibration import MAX_LOSS as MAX_LOSS
from dance_flwr.nn.calibration import THOUSANDTHS

SHARES = tuple(step / 10 for step in range(11))  # of the own model, candidates
# Why (decision 30): below a hundred validation nodes the best share of a client is mostly chance,
# so the federation's mean loss enters with the weight of a hundred nodes.
PRIOR_NODES = 100
_MIN_PROB = 1e-6  # a single confident error must not decide


@dataclass(frozen=True)
class Mixture:
    """p = lambda q + (1 - lambda) p_global, q the probabilities of the client's own model.

    Attributes
    ----------
    kind : of the own model, "alone" or "tuned"
    own : [n, C] q of all nodes
    share : lambda, in [0, 1]
    """

    kind: str
    own: Float[Tensor, "n C"]
    share: float

    def of(self, shared: Float[Tensor, "m C"], nodes: Int64[Tensor, "m"]) -> Float[Tensor, "m C"]:
        """Return the mixture at these nodes, given what the global model says of them."""
        return self.share * self.own[nodes] + (1 - self.share) * shared


def candidates(personal: str) -> list[tuple[str, float]]:
    """Return the kinds of own models and their shares among which a client chooses.

    Examples
    --------
    >>> candidates("tune"), len(candidates("mix")), len(candidates("auto"))
    ([('tuned', 1.0)], 11, 22)
    """
    shares = (1.0,) if personal == "tune" else SHARES
    return [(kind, share) for kind in PERSONAL[personal] for share in shares]


def mixture_losses(
    own: Float[Tensor, "m C"],
    shared: Float[Tensor, "m C"],
    labels: Int64[Tensor, "m"],
    shares: Sequence[float] = SHARES,
) -> list[int]:
    """-1000 sum_v log p_v(y_v) of the mixture with each of the shares, rounded.

    Examples
    --------
    >>> own, shared = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    >>> losses = mixture_losses(own, shared, torch.tensor([0]))
    >>> losses[0], losses[-1]
    (693, 0)
    """
    at = labels[:, None]
    q, p = own.double().gather(1, at), shared.double().gather(1, at)
    weight = torch.tensor(shares, dtype=torch.float64, device=q.device)
    total = (weight * q + (1 - weight) * p).clamp(_MIN_PROB, 1).log().sum(0)
    return [int(value) for value in (-THOUSANDTHS * total).round().tolist()]


def best_candidate(losses: Sequence[int], every: Sequence[int] = (), nodes: int = 0) -> int:
    """Return the place of the least loss at the client plus the federation's, as of 100 nodes.

    Parameters
    ----------
    losses : of this client's candidates
    every, nodes : their sum over the clients of the federation, and its number of nodes; without
        them the client decides alone

    Examples
    --------
    >>> best_candidate([9, 8, 7, 6, 5, 6, 7, 8, 9, 10, 11])
    4
    """
    weight = PRIOR_NODES / nodes if nodes else 0.0
    prior = every if nodes else [0] * len(losses)
    total = [loss + weight * sum_ for loss, sum_ in zip(losses, prior, strict=True)]
    # Of equal ones the first, with the largest share of the global model.
    return min(range(len(total)), key=total.__getitem__)
