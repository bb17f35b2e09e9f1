"""The server side of FedGTA: for each client a mean over clients with similar soft labels."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr import events
from dance_flwr.methods.personal_parts import Personalised
from dance_flwr.methods.server_side import State
from dance_flwr_rivals.fedgta import FedGtaConfig


class FedGtaServer(Personalised):
    """omega_k <- sum_{j in S_k} H_j omega_j / sum_{j in S_k} H_j.

    S_k = {j : cos(M_k, M_j) > epsilon} and k itself. M and H are the moments and the confidence
    that clients upload. The history counts the accepted pairs of a round; where all are accepted,
    this is FedAvg with other weights.
    """

    statistics = ("confidence", "moments")

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the mean for each client of the round, and the number of (accepted) pairs."""
        moments = torch.stack([statistic["moments"].double() for statistic in statistics.values()])
        confidence = torch.stack(
            [statistic["confidence"].double() for statistic in statistics.values()]
        ).flatten()
        accepted = similar_pairs(moments, FedGtaConfig.of(self.config).epsilon)
        pairs = len(models) * (len(models) - 1)
        count = int(accepted.sum()) - len(models)
        # Reported, because a threshold that accepts all pairs makes this FedAvg with other weights.
        events.emit(
            "pairs_accepted",
            f"{count} of {pairs} pairs of clients are similar",
            pairs=pairs,
            accepted=count,
        )
        mixed = mix_models(list(models.values()), mixing_weights(accepted, confidence))
        return dict(zip(models, mixed, strict=True)), {
            "pairs-asked": pairs,
            "pairs-accepted": count,
        }


def similar_pairs(moments: Tensor, epsilon: float) -> Tensor:
    """a_kj = [cos(M_k, M_j) > epsilon or k = j], [m, d] -> [m, m] bool; cos = 0 for a zero M."""
    unit = F.normalize(moments, dim=1)
    # Rounding may lift the cosine of two equal vectors above 1, which epsilon = 1 must not accept.
    cosine = (unit @ unit.T).clamp(-1, 1)
    return (cosine > epsilon) | torch.eye(len(moments), dtype=torch.bool)


def mixing_weights(accepted: Tensor, confidence: Tensor) -> Tensor:
    """p_kj = a_kj H_j / sum_i a_ki H_i, [m, m] with rows that sum to 1.

    Where all H in S_k are 0 it is a_kj / sum_i a_ki: H is 0 at a client without edges, and the
    paper does not say what happens if no other client is accepted.

    Parameters
    ----------
    accepted : a, [m, m] bool with a true diagonal; confidence : H, [m] >= 0
    """
    weights = accepted * confidence
    weights = torch.where(weights.sum(dim=1, keepdim=True) > 0, weights, accepted.to(weights.dtype))
    return weights / weights.sum(dim=1, keepdim=True)


def mix_models(models: list[State], weights: Tensor) -> list[State]:
    """omega_k = sum_j p_kj omega_j, computed in float64; m models with the types of the uploads.

    Parameters
    ----------
    models : omega, m states
    weights : p, [m, m]
    """
    # float64, so that equal models have themselves as their mean.
    stacked = {name: torch.stack([model[name].double() for model in models]) for name in models[0]}
    return [
        {
            name: torch.tensordot(row, every, 1).to(models[0][name].dtype)
            for name, every in stacked.items()
        }
        for row in weights.double()
    ]
