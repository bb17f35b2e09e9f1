"""Temperature scaling (Guo et al. 2017), fitted and measured from sums over nodes.

No probability of a node has to leave a client: losses on validation nodes at a few temperatures
choose one of them, and sums by bin over the test nodes, which did not choose it, measure it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

LOG = logging.getLogger("flwr")
# Why a grid (decision 30): a loss at each of these, an eighth to eight in steps of 19 %, is a sum
# that masks can hide; a search would ask the clients again for every temperature it tries.
TEMPERATURES = tuple(round(2 ** (step / 4), 3) for step in range(-12, 13))
BINS = 15  # of equal width, as in Guo et al.
MIN_NODES = 100  # to fit a temperature on
THOUSANDTHS = 1000  # of a nat: losses are whole numbers, whose sums are exact under masks, too
MAX_LOSS = 13_816  # of a node, -1000 log 10^-6
_LEAST_GAIN = 1.92 * THOUSANDTHS  # half of the chi-square of one parameter at 5 %
MIN_PROB = 1e-12  # so that a probability of 0 has a logarithm


@dataclass(frozen=True)
class Calibration:
    """p_T = softmax(log(p) / T).

    Attributes
    ----------
    temperature : T; 1 = as they are
    nodes : validation nodes that T was fitted on; 0 = none, and T = 1
    error_before, error_after : expected calibration error on the test nodes with T = 1 and with T;
        None = not measured
    """

    temperature: float = 1.0
    nodes: int = 0
    error_before: float | None = None
    error_after: float | None = None

    @classmethod
    def fit(
        cls,
        losses: Sequence[Sequence[int]],
        nodes: int,
        gaps: Sequence[int],
        test_nodes: int,
        settled: float | None = None,
    ) -> "Calibration":
        """Return the T with the least loss; log a warning where the nodes do not tell it.

        T = 1 below `MIN_NODES`, as the best T of a few nodes is far from that of others, and where
        a likelihood-ratio test at 5 % does not tell T from 1. Otherwise it is `trimmed` by the best
        T of each client.

        Parameters
        ----------
        losses, nodes : `temperature_losses` of every client with nodes, or their sum; and the
            number of nodes
        gaps, test_nodes : sum of `confidence_gaps`, and its number of nodes
        settled : T, if it was fitted before; None = fit it

        Examples
        --------
        >>> Calibration.fit([range(25_000, 0, -1_000)], 120, [0] * 375, 0).temperature
        8.0
        """
        if not gaps:  # they are withheld
            return cls()
        best = middle = TEMPERATURES.index(1.0)
        if 0 < nodes < MIN_NODES:
            LOG.warning(
                "calibration: expected at least %d labelled validation nodes, found %d; "
                "probabilities stay as they are (temperature 1)",
                *(MIN_NODES, nodes),
            )
        elif nodes:

            def least(of: Sequence[int]) -> int:
                # Of equal ones that next to 1, which changes the least.
                return min(range(len(of)), key=lambda place: (of[place], abs(place - middle)))

            every = [sum(column) for column in zip(*losses, strict=True)]
            if every[middle] - min(every) > _LEAST_GAIN:
                best = trimmed(least(every), list(map(least, losses)))
        if settled is not None:
            best = TEMPERATURES.index(settled)
        if best in (0, len(TEMPERATURES) - 1):
            LOG.warning(
                "calibration: the temperature ends at its bound, %g; the validation nodes do not "
                "tell how sure the model may be, so check a sample by hand",
                TEMPERATURES[best],
            )
        errors = (_error(gaps, place, test_nodes) for place in (middle, best))
        return cls(TEMPERATURES[best], nodes if nodes >= MIN_NODES else 0, *errors)

    def __str__(self) -> str:
        fitted = f"temperature {self.temperature:g}, fitted on {self.nodes:,} validation nodes"
        if self.temperature == 1:
            fitted = f"temperature 1: no other is better on {self.nodes:,} validation nodes"
        text = fitted if self.nodes else "not fitted (temperature 1)"
        if self.error_before is None or self.error_after is None:
            return text
        errors = f"{self.error_after:.3f}, {self.error_before:.3f} without it"
        return f"{text}; expected error on test nodes {errors if self.nodes else errors[:5]}"

    def apply(self, probs: Tensor) -> Tensor:
        """Return [m, C] calibrated probabilities; the predicted classes stay."""
        return probs if self.temperature == 1 else _scaled(probs, self.temperature)


def trimmed(value: int, own: Sequence[int]) -> int:
    """Return a value within those of the clients without the least and the largest.

    So one of five or more does not choose for all; fewer do not tell who is unusual.

    Examples
    --------
    >>> trimmed(9, [1, 2, 2, 3, 40]), trimmed(9, [1, 40])
    (3, 9)
    """
    ordered = sorted(own)
    return value if len(own) < 5 else min(max(value, ordered[1]), ordered[-2])


def _scaled(probs: Tensor, temperature: float) -> Tensor:
    return torch.softmax(probs.double().clamp(min=MIN_PROB).log() / temperature, dim=-1)


def temperature_losses(probs: Float[Tensor, "m C"], labels: Int64[Tensor, "m"]) -> list[int]:
    """-1000 sum_v log p_T,v(y_v) at each of `TEMPERATURES`, rounded; [25].

    Examples
    --------
    >>> losses = temperature_losses(torch.tensor([[0.8, 0.2]]), torch.tensor([0]))
    >>> losses[TEMPERATURES.index(1.0)]
    223
    """
    losses = [
        # A single confident error must not decide.
        -_scaled(probs, temperature).gather(1, labels[:, None]).log() * THOUSANDTHS
        for temperature in TEMPERATURES
    ]
    return [round(float(each.clamp(max=MAX_LOSS).sum())) for each in losses]


def confidence_gaps(probs: Float[Tensor, "m C"], labels: Int64[Tensor, "m"]) -> list[int]:
    """1000 (m + confidence(b) - hits(b)) by temperature and bin, rounded; [25 * 15].

    Confidence and hits are sums over the nodes of a bin, which the probability of the predicted
    class decides. m makes every entry whole and positive, as a sum under masks requires.

    Examples
    --------
    >>> gaps = confidence_gaps(torch.tensor([[0.9, 0.1]]), torch.tensor([1]))
    >>> first = TEMPERATURES.index(1.0) * BINS
    >>> gaps[first + 12 : first + 15]
    [1000, 1900, 1000]
    """
    gaps: list[int] = []
    for temperature in TEMPERATURES:
        confidence, guess = _scaled(probs, temperature).max(dim=1)
        # A confidence of 1 belongs to the last bin.
        bins = (confidence * BINS).long().clamp(max=BINS - 1)
        by_bin = confidence.new_full((BINS,), float(len(labels)))
        by_bin.index_add_(0, bins, confidence - (guess == labels).double())
        gaps += (THOUSANDTHS * by_bin).round().long().tolist()
    return gaps


def _error(gaps: Sequence[int], place: int, nodes: int) -> float | None:
    """ECE = sum_b |hits(b) - confidence(b)| / m at one temperature; None without nodes."""
    if not nodes:
        return None
    by_bin = gaps[place * BINS : (place + 1) * BINS]
    return sum(abs(gap - THOUSANDTHS * nodes) for gap in by_bin) / (THOUSANDTHS * nodes)
