"""Compute every metric: hits on a split, accuracy, F1, and the cost of a client's round."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

QUANTILE = 1.96  # of 95 %


@dataclass(frozen=True)
class Counts:
    """Counts of one client on one split: all that it sends for metrics.

    Attributes
    ----------
    correct : per view, correctly classified nodes; total : nodes
    true_positives, predicted, actual : per class, of the deployed prediction
    calibration : of the deployed prediction of the final model: `temperature_losses` on "val",
        `confidence_gaps` on "test"; empty of a validation, and under differential privacy
    """

    correct: Mapping[str, int]
    total: int
    true_positives: Sequence[int]
    predicted: Sequence[int]
    actual: Sequence[int]
    calibration: Sequence[int] = ()

    @property
    def accuracy(self) -> float | None:
        """Share of correct nodes of the deployed prediction; None without nodes."""
        return accuracy(self.correct["deployed"], self.total)

    @property
    def macro_f1(self) -> float | None:
        """Mean F1 over classes of the deployed prediction; None without nodes."""
        return macro_f1(self.true_positives, self.predicted, self.actual)


def count(views: Mapping[str, Tensor], target: Tensor) -> Counts:
    """Return the hits of every view on m nodes.

    Parameters
    ----------
    views : per name [m, C] probabilities, with "deployed" among them
    target : [m] int64 labels
    """
    # The deployed view alone has counts by class, as macro F1 is reported of it only.
    guesses = {name: probs.argmax(dim=1) for name, probs in views.items()}
    # As many as there are classes, also absent ones: counts of clients are added up.
    classes = torch.arange(views["deployed"].size(1), device=target.device)[:, None]
    actual, predicted = target == classes, guesses["deployed"] == classes
    hits = (torch.stack([*guesses.values()]) == target).sum(1)
    by_class = torch.stack([actual & predicted, predicted, actual]).sum(2)
    numbers = torch.cat([hits, by_class.flatten()]).tolist()
    first, size = len(hits), len(classes)
    correct = dict(zip(views, numbers[:first], strict=True))
    parts = (numbers[start : start + size] for start in range(first, len(numbers), size))
    return Counts(correct, int(target.numel()), *parts)


def accuracy(correct: int, total: int) -> float | None:
    """Return correct / total, in [0, 1]; None without nodes, as 0 would be a bad score."""
    return correct / total if total else None


def macro_f1(
    true_positives: Sequence[int], predicted: Sequence[int], actual: Sequence[int]
) -> float | None:
    """Return the mean over classes of 2 TP / (predicted + actual), in [0, 1]; None without nodes.

    Equals scikit-learn's `f1_score(average="macro")`: classes that neither occur nor are predicted
    are omitted.
    """
    counts = zip(true_positives, predicted, actual, strict=True)
    scores = [2 * tp / (p + a) for tp, p, a in counts if p + a > 0]
    return sum(scores) / len(scores) if scores else None


def balanced_accuracy(true_positives: Sequence[int], actual: Sequence[int]) -> float | None:
    """Return the mean over classes of TP / actual, in [0, 1]; None without nodes.

    Equals scikit-learn's `balanced_accuracy_score`: classes that do not occur are omitted.
    """
    recalls = [tp / a for tp, a in zip(true_positives, actual, strict=True) if a > 0]
    return sum(recalls) / len(recalls) if recalls else None


PHASES = ("forward", "nodes", "text", "topology", "packs", "train")
COUNTS = (
    *("condensed-nodes", "evidence-neighbours", "evidence-chunks", "evidence-tokens"),
    "evidence-supervised",  # labelled nodes of the plain term
    "evidence-packs",  # written in the round, for the cores until the next selection
)


@dataclass(frozen=True)
class Tokens:
    """Tokens and calls of one client over a run, or their sums: counters, and nothing of a text.

    Attributes
    ----------
    evidence_chunks, evidence_tokens : of the evidence of all refreshes, as often as it was read
    distinct_chunks, distinct_tokens : of these, each chunk once
    llm_fresh_calls, ... : as in `dance_flwr.llm.session.CallCounts`
    model, tokeniser : names of the language model and of what counted its tokens; empty = none
    """

    evidence_chunks: int = 0
    evidence_tokens: int = 0
    distinct_chunks: int = 0
    distinct_tokens: int = 0
    llm_fresh_calls: int = 0
    llm_cached_calls: int = 0
    llm_failed_calls: int = 0
    llm_capped_calls: int = 0
    llm_fresh_prompt: int = 0
    llm_fresh_completion: int = 0
    llm_cached_prompt: int = 0
    llm_cached_completion: int = 0
    llm_milliseconds: int = 0
    model: str = ""
    tokeniser: str = ""


# By their default: the two names are no counts, and nothing adds them up.
TOKEN_COUNTS = tuple(item.name for item in fields(Tokens) if item.default == 0)


@dataclass
class Report:
    """The cost and the counts of a client's round: seconds by phase, counts summed over the core.

    Every key is always present, as Flower requires the same keys from all clients.

    Attributes
    ----------
    statistics : name -> float tensor for the method's server side; empty for a method of sums
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    loss: float = 0.0
    statistics: "dict[str, Tensor]" = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds of this block to phase `name`."""
        # Not in a `finally`: the round of a block that raises is not reported.
        start = time.perf_counter()
        yield
        # Or the next phase would wait for this one. Rounds end in a wait anyway.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        self.seconds[name] += time.perf_counter() - start


@dataclass(frozen=True)
class Training:
    """The cost and the counts of a round of training, over all clients and the server.

    Attributes
    ----------
    loss : weighted mean over clients, or that of the method's server side
    seconds : by phase, summed over clients, and of the method's server side
    counts : summed over clients, and of the method's server side
    by_client : client -> its seconds by phase; empty where only sums are known
    skipped : why the model stays as it was; "" = it does not
    """

    loss: float
    seconds: Mapping[str, float]
    counts: Mapping[str, int]
    by_client: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    skipped: str = ""
