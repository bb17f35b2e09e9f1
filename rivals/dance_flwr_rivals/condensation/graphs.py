"""A client's real graph, the synthetic graph S = (X', A', Y'), and S as an upload."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.methods.plain_method import LabelledGraph
from dance_flwr.nn.propagation import propagated

# The hops of GCond's matching network on Cora and CiteSeer in the public code.
HOPS = 2
ExpectedShapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
GRAPH = ("features", "adjacency", "labels")  # tensors of an uploaded S


@dataclass(frozen=True)
class Condensed:
    """S = (X', A', Y').

    Attributes
    ----------
    labels : [K] int64, sorted; features : [K, d] float32, in layer-normalised coordinates
    adjacency : [K, K] float32 in [0, 1], symmetric, zero diagonal
    """

    labels: Tensor
    features: Tensor
    adjacency: Tensor


class RealGraph(LabelledGraph):
    """A client's graph as condensation reads it; its operator is of kind "gcn"."""

    def propagated(self) -> Tensor:
        """Z = P^2 LN(X), [n, d]."""
        return spread(layer_normalise(self.features), self.operator)[-1]

    def nodes_by_class(self) -> Tensor:
        """Return the labelled nodes sorted by class, then by number; [m] int64."""
        known = torch.nonzero(self.labels >= 0).flatten()
        # Stable, so that sums over a class add the same nodes in the same order.
        return known[torch.sort(self.labels[known], stable=True).indices]


def spread(features: Tensor, operator: Tensor) -> list[Tensor]:
    """Return X, P X and P^2 X."""
    hops = [features]
    for _ in range(HOPS):
        hops.append(propagated(operator, hops[-1]))
    return hops


def layer_normalise(features: Tensor) -> Tensor:
    """LN(x) without parameters, as backbones normalise their input."""
    return F.layer_norm(features, features.shape[-1:])


def as_upload(condensed: Condensed) -> dict[str, Tensor]:
    """Return S as tensors by name."""
    return {name: getattr(condensed, name) for name in GRAPH}


def graph_in(upload: Mapping[str, Tensor]) -> Condensed:
    """Return a copy of the S of an upload; the inverse of `as_upload`."""
    # Copied: refining S in place must not change what is stored, a fault of FedGM's public code.
    features, adjacency, labels = (upload[name].clone() for name in GRAPH)
    return Condensed(labels, features, adjacency)


def graph_fault(upload: Mapping[str, Tensor], dim: int, classes: int) -> str:
    """Return a fault of an uploaded S of d columns and C classes, "" if it is valid."""
    adjacency, labels = upload["adjacency"], upload["labels"]
    rows = labels.numel()
    shapes: ExpectedShapes = {
        "features": (torch.float32, (rows, dim)),
        "adjacency": (torch.float32, (rows, rows)),
        "labels": (torch.int64, (rows,)),
    }
    if fault := shapes_fault(upload, shapes):
        return fault
    # Sorted, because gradients of classes are taken of contiguous rows.
    if not bool(((labels >= 0) & (labels < classes)).all()) or not labels.equal(
        labels.sort().values
    ):
        return f"expected labels from 0 to {classes - 1} in ascending order, found other labels"
    if not bool(((adjacency >= 0) & (adjacency <= 1)).all()) or bool(adjacency.diagonal().any()):
        return "expected an adjacency in [0, 1] with a zero diagonal, found other entries"
    if not adjacency.equal(adjacency.T):
        return "expected a symmetric adjacency, found an asymmetric one"
    return ""


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
