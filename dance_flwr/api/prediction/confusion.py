"""The confusion matrix of a finished run, from the clients' folders where they are on this machine.

Clients send counts by class, not by pair of classes, so a run's record has none. Here the saved
model predicts the test nodes again, as the clients did at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dance_flwr.api.prediction.tested import tested_clients


@dataclass(frozen=True)
class Confusion:
    """Counts of the test nodes of all clients.

    Attributes
    ----------
    class_names : in the order of the classes
    counts : [classes][predictions] nodes
    remark : how the counts differ from the run's record; "" = not at all
    """

    class_names: Sequence[str]
    counts: Sequence[Sequence[int]]
    remark: str = ""


def confusion_matrix(run: Path, result: Mapping[str, Any]) -> Confusion:
    """Predict the test nodes of a finished run's clients again, and count."""
    total, names = torch.zeros(0, 0, dtype=torch.int64), tuple[str, ...]()
    for tested in tested_clients(run, result):
        names = tested.class_names
        classes = len(names)
        pairs = tested.labels * classes + tested.predicted["deployed"]
        counts = torch.bincount(pairs, minlength=classes * classes).view(classes, classes)
        total = counts if not total.numel() else total + counts
    return Confusion(names, total.tolist(), _remark(total, result))


def _remark(counts: Tensor, result: Mapping[str, Any]) -> str:
    """Return how the counts differ from the run's record; "" where they agree."""
    hits, nodes = int(counts.diagonal().sum()), int(counts.sum())
    recorded = round((result["test_accuracy"] or 0.0) * result["test_nodes"])
    if (hits, nodes) == (recorded, result["test_nodes"]):
        return ""
    return (
        f"The run itself counted {recorded:,} of {result['test_nodes']:,} right, on another device "
        "or without a client that did not answer at the end."
    )
