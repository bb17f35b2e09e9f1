"""Validation of uploads: each function returns a description of a fault, or "" if there is none."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from statistics import median_low

import torch
from torch import Tensor

_LARGEST = 2.0**31  # of a statistic: of counts of nodes, and far beyond any mean or gradient
_OUTLIER = 10.0
# Why 2: clients train with a fresh Adam per round, whose steps hardly depend on the gradient, so
# that honest updates have nearly one length. On Cora, with 21 methods and for two of them in 19
# settings (skewed and few labels, 5 to 20 clients, backbones, rates, epochs), the longest was 1.26
# times the median of its round, and 1.15 times the longest of its client before
# (studies/benchmarks/poisoning.py --honest).
_MAX_RATIO = 2.0
# Two updates differ from each other, and nobody knows which is the outlier.
_MIN_FOR_MEDIAN = 3
_LONGEST = "longest-update-"  # of a client, whose number follows
ExpectedShapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def model_fault(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> str:
    """Return a fault of an uploaded model: other names, shapes or types, or numbers not finite.

    Parameters
    ----------
    start : the model that the round started from
    """
    # Names, then shapes, types and numbers: the first fault often explains those after it.
    if different := sorted(model.keys() ^ start.keys()):
        return (
            f"expected the {len(start)} tensors of the global model, found others or none: "
            # Cut, as names come from a client and the line goes to a log.
            f"{', '.join(different)[:200]}"
        )
    for name, tensor in model.items():
        if tensor.shape != start[name].shape:
            return (
                f"expected {name} of shape {tuple(start[name].shape)}, found {tuple(tensor.shape)}"
            )
        if tensor.dtype != start[name].dtype:
            return f"expected {name} of type {start[name].dtype}, found {tensor.dtype}"
        # A finite sum proves it at a quarter of the cost; a sum of large entries may overflow.
        finite = not tensor.is_floating_point() or isfinite(tensor.sum())
        if not finite and not bool(torch.isfinite(tensor).all()):
            return f"expected finite numbers, found NaN or infinity in {name}"
    return ""


def statistics_fault(statistics: Mapping[str, Tensor], names: Sequence[str]) -> str:
    """Return a fault of the statistics beside a model: other names, or numbers not finite."""
    if sorted(statistics) != sorted(names):
        return f"expected the statistics {sorted(names)}, found {str(sorted(statistics))[:200]}"
    broken = [name for name, tensor in statistics.items() if not bool(tensor.isfinite().all())]
    if broken:
        return f"expected finite numbers, found NaN or infinity in {broken[0]}"
    # Sums over clients, and their squares, must stay finite in float32.
    huge = [name for name, t in statistics.items() if bool((t.double().abs() > _LARGEST).any())]
    return f"expected numbers up to {_LARGEST:g}, found larger ones in {huge[0]}" if huge else ""


def shapes_fault(tensors: Mapping[str, Tensor], expected: ExpectedShapes) -> str:
    """Return a fault of the first tensor with another shape or type than expected."""
    for name, (kind, shape) in expected.items():
        if name not in tensors:
            return f"expected {name}, found none"
        tensor = tensors[name]
        if (tensor.dtype, tuple(tensor.shape)) != (kind, shape):
            return (
                f"expected {name} of {kind} and shape {shape}, found {tensor.dtype} and "
                f"{tuple(tensor.shape)}"
            )
    return ""


def update_norm(model: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """Return || omega - omega_0 || over all float entries, in float64."""
    names = [name for name, tensor in start.items() if tensor.is_floating_point()]
    if not names:
        return 0.0
    # Why in one call for all tensors (decision 31): a model of DANCE has 18 of them.
    change = torch._foreach_sub([model[name] for name in names], [start[name] for name in names])
    # float64: squares of large float32 entries would overflow.
    lengths = torch._foreach_norm(change, 2, torch.float64)
    return float(torch.linalg.vector_norm(torch.stack(lengths)))


def norm_bounds(norms: Sequence[float], starts: Sequence[float]) -> list[float]:
    """Return the norm above which the update of each client of a round is an outlier.

    It is 10 times the larger of the (lower) median norm of the round and the norm of the model that
    the client received. The median is that of an honest client as long as more than half of the
    clients are honest. If a client is alone, or the others have not moved, ten times its model is
    more than training changes in a round, and bounds the damage.

    Parameters
    ----------
    norms : of the updates, one per client
    starts : of the models that they received
    """
    # The lower median: of two clients, none can raise the bound of the other.
    return [_OUTLIER * max(median_low(norms), start) for start in starts]


class NormHistory:
    """Bound the update of each client by those of the others and by its own past.

    An update is at most twice as long as the (lower) median of the updates of its round, where at
    least three clients moved, and twice as long as the longest that its client sent so far. A
    majority of honest clients keeps the median honest, and the past keeps a client from a sudden
    change where there is no majority. Norm bounding is from Sun et al. 2019 ("Can You Really
    Backdoor Federated Learning?").

    Attributes
    ----------
    longest : client -> norm of its longest update so far
    """

    def __init__(self) -> None:
        self.longest: dict[int, float] = {}

    def bounds(self, norms: Mapping[int, float]) -> dict[int, float]:
        """Return the bound of each client's update in this round, and remember the round.

        Parameters
        ----------
        norms : client -> norm of its update
        """
        # An update of zero is that of a client without a label: it says nothing about the others.
        moved = sorted(norm for norm in norms.values() if norm > 0)
        usual = median_low(moved) if len(moved) >= _MIN_FOR_MEDIAN else inf
        bounds = {
            client: _MAX_RATIO * min(usual, self.longest.get(client, inf)) for client in norms
        }
        for client, norm in norms.items():
            # What was applied, or a client would raise its own bound by what was refused.
            if applied := min(norm, bounds[client]):
                self.longest[client] = max(applied, self.longest.get(client, 0.0))
        return bounds

    def numbers(self) -> dict[str, float]:
        """Return the history by name, for a checkpoint."""
        return {f"{_LONGEST}{client}": norm for client, norm in self.longest.items()}

    def restore(self, numbers: Mapping[str, float]) -> None:
        """Restore what `numbers` returned, among other numbers."""
        self.longest = {
            int(name.removeprefix(_LONGEST)): norm
            for name, norm in numbers.items()
            if name.startswith(_LONGEST)
        }
