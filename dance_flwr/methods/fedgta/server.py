"""The server side of FedGTA (Li et al. 2023): for each client a mean over those whose soft labels
are like its own.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr import events
from dance_flwr.methods.fedgta.config import FedGtaConfig
from dance_flwr.methods.personalised import Personalised
from dance_flwr.methods.server_side import State


class FedGtaServer(Personalised):
    """omega_k <- sum_{j in S_k} H_j omega_j / sum_{j in S_k} H_j, S_k = {j : cos(M_k, M_j) >
    epsilon} and k itself.

    M and H are the moments and the confidence that clients upload. The history says how many of the
    pairs of a round were accepted: where it is all of them, this is FedAvg with other weights.
    """

    statistics = ("confidence", "moments")

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the mean for each client of the round, and of how many ordered pairs how many were
        accepted.
        """
        moments = torch.stack([own["moments"].double() for own in statistics.values()])
        confidence = torch.stack(
            [own["confidence"].double() for own in statistics.values()]
        ).flatten()
        accepted = similar(moments, FedGtaConfig.of(self.config).epsilon)
        pairs = len(models) * (len(models) - 1)
        found = int(accepted.sum()) - len(models)
        events.emit(
            "pairs_accepted",
            f"{found} of {pairs} pairs of clients are alike",
            pairs=pairs,
            accepted=found,
        )
        mixed = mixtures(list(models.values()), weights_of(accepted, confidence))
        return dict(zip(models, mixed, strict=True)), {
            "pairs-asked": pairs,
            "pairs-accepted": found,
        }


def similar(moments: Tensor, epsilon: float) -> Tensor:
    """a_kj = [cos(M_k, M_j) > epsilon or k = j]; [m, d] -> [m, m] bool. The cosine with a vector of
    zeros is 0.
    """
    unit = F.normalize(moments, dim=1)
    # Rounding may lift the cosine of two equal vectors above 1, which epsilon = 1 must refuse.
    cosine = (unit @ unit.T).clamp(-1, 1)
    return (cosine > epsilon) | torch.eye(len(moments), dtype=torch.bool)


def weights_of(accepted: Tensor, confidence: Tensor) -> Tensor:
    """p_kj = a_kj H_j / sum_i a_ki H_i, [m, m] with rows that sum to 1; a_kj / sum_i a_ki where all
    H in S_k are 0.

    H is 0 at a client without edges; the paper leaves open what is done where nobody else is
    accepted.

    Parameters
    ----------
    accepted : a, [m, m] bool with a true diagonal; confidence : H, [m] >= 0
    """
    given = accepted * confidence
    given = torch.where(given.sum(dim=1, keepdim=True) > 0, given, accepted.to(given.dtype))
    return given / given.sum(dim=1, keepdim=True)


def mixtures(models: list[State], weights: Tensor) -> list[State]:
    """omega_k = sum_j p_kj omega_j, in float64; [m, m] weights -> m models with the types of the
    uploads.
    """
    stacked = {name: torch.stack([model[name].double() for model in models]) for name in models[0]}
    return [
        {
            name: torch.tensordot(row, every, 1).to(models[0][name].dtype)
            for name, every in stacked.items()
        }
        for row in weights.double()
    ]
