"""Temperature scaling of the deployed probabilities (Guo et al. 2017)."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from dance_flwr.data.graphs.graph import VAL
from dance_flwr.federation.client.client import Client
from dance_flwr.methods.contract import RoundInfo

_MIN_PROB = 1e-12  # so that a probability of 0 has a logarithm
MAX_TEMPERATURE = 10.0  # its inverse is the smallest temperature
MIN_NODES = 100  # to fit a temperature on


@dataclass(frozen=True)
class Calibration:
    """p_T = softmax(log(p) / T).

    Attributes
    ----------
    temperature : T; 1 = as they are
    nodes : validation nodes that T was fitted on; 0 = none
    error_before, error_after : expected calibration error on them, 15 bins of equal width; after by
        the T of the other half of them
    """

    temperature: float = 1.0
    nodes: int = 0
    error_before: float = 0.0
    error_after: float = 0.0

    @classmethod
    def fit(cls, clients: Iterable[Client]) -> "Calibration":
        """Return the T with the least negative log-likelihood of all validation nodes together.

        T = 1, with a warning, below `MIN_NODES`: the best T of a few nodes is far from that of
        others. T at its bound is a warning, too.
        """
        parts = [_validation(client) for client in clients]
        probs = torch.cat([part for part, _ in parts])
        labels = torch.cat([part for _, part in parts])
        if len(labels) < MIN_NODES:
            warnings.warn(
                f"calibration: expected at least {MIN_NODES} labelled validation nodes, found "
                f"{len(labels)}; probabilities stay as they are (temperature 1)",
                stacklevel=2,
            )
            return cls()
        best, half = _fitted(probs, labels), torch.arange(len(labels)) % 2 == 0
        if max(best, 1 / best) > 0.99 * MAX_TEMPERATURE:
            warnings.warn(
                f"calibration: the temperature ends at its bound, {best:.3g}; the validation nodes "
                "do not tell how sure the model may be, so check a sample by hand",
                stacklevel=2,
            )
        # An error on the nodes that fitted T would be too small.
        across = torch.empty_like(probs, dtype=torch.float64)
        for fit, rest in ((half, ~half), (~half, half)):
            across[rest] = cls(_fitted(probs[fit], labels[fit])).apply(probs[rest]).double()
        errors = (calibration_error(rows, labels) for rows in (probs, across))
        return cls(best, len(labels), *errors)

    def apply(self, probs: Tensor) -> Tensor:
        """Return [m, C] calibrated probabilities; the predicted classes stay."""
        if self.temperature == 1:
            return probs
        return torch.softmax(probs.double().clamp(min=_MIN_PROB).log() / self.temperature, dim=1)


def _fitted(probs: Tensor, labels: Tensor) -> float:
    """Return the T that gives these labels the least negative log-likelihood."""

    def loss(exponent: float) -> float:
        scaled = Calibration(exp(exponent)).apply(probs)
        return float(-scaled.gather(1, labels[:, None]).clamp(min=_MIN_PROB).log().mean())

    # On a logarithmic scale T and 1 / T are equally far from 1.
    bound = log(MAX_TEMPERATURE)
    return float(exp(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))


def calibration_error(probs: Tensor, labels: Tensor, bins: int = 15) -> float:
    """ECE = sum_b |b| / m |accuracy(b) - confidence(b)|; [m, C], [m] int64 -> a share.

    Bins are of equal width over the probability of the predicted class.
    """
    confidence, guess = probs.double().max(dim=1)
    # A confidence of 1 belongs to the last bin.
    place = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64)
    gaps.index_add_(0, place, (guess == labels).double() - confidence)
    return float(gaps.abs().sum() / max(len(labels), 1))


def _validation(client: Client) -> tuple[Tensor, Tensor]:
    """Return deployed probabilities [v, C] and labels [v] of a client's validation nodes."""
    data = client.data
    nodes = torch.nonzero((data.split == VAL) & (data.labels >= 0)).flatten()
    if not len(nodes):
        return torch.zeros(0, len(data.card.class_names)), data.labels[:0]
    return client.predict(RoundInfo("", 0, "", final=True), nodes)["deployed"], data.labels[nodes]
