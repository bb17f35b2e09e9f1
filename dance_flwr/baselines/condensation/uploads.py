"""Condensed graphs S = (X', A', Y') as clients upload them, and how a server validates them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.baselines.condensation.graphs import Condensed
from dance_flwr.methods.upload_checks import ExpectedShapes, shapes_fault

GRAPH = ("features", "adjacency", "labels")  # tensors of an uploaded S


def as_upload(condensed: Condensed) -> dict[str, Tensor]:
    """Return S as tensors by name."""
    return dict(
        zip(GRAPH, (condensed.features, condensed.adjacency, condensed.labels), strict=True)
    )


def graph_in(upload: Mapping[str, Tensor]) -> Condensed:
    """Return the S of an upload; the inverse of `as_upload`, in new memory."""
    features, adjacency, labels = (upload[name].clone() for name in GRAPH)
    return Condensed(labels, features, adjacency)


def graph_fault(upload: Mapping[str, Tensor], dim: int, classes: int) -> str:
    """Return what is wrong with an uploaded S, "" where nothing is.

    Parameters
    ----------
    upload : finite tensors, with the names in `GRAPH`
    dim : d; classes : C
    """
    adjacency, labels = upload["adjacency"], upload["labels"]
    rows = labels.numel()
    shapes: ExpectedShapes = {
        "features": (torch.float32, (rows, dim)),
        "adjacency": (torch.float32, (rows, rows)),
        "labels": (torch.int64, (rows,)),
    }
    if fault := shapes_fault(upload, shapes):
        return fault
    if not bool(((labels >= 0) & (labels < classes)).all()) or not labels.equal(
        labels.sort().values
    ):
        return f"expected labels from 0 to {classes - 1} in ascending order, found other labels"
    if not bool(((adjacency >= 0) & (adjacency <= 1)).all()) or bool(adjacency.diagonal().any()):
        return "expected an adjacency in [0, 1] with a zero diagonal, found other entries"
    return (
        ""
        if adjacency.equal(adjacency.T)
        else "expected a symmetric adjacency, found an asymmetric one"
    )
