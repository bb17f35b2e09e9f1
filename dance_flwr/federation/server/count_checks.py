"""Check the counts in an answer to EVALUATE, of one client or summed over several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dance_flwr.data.checks import MAX_CLASSES
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.counts import PER_CLASS
from dance_flwr.federation.wire.rules import Rule, entries_fault, list_of, whole
from dance_flwr.metrics import TOKEN_COUNTS
from dance_flwr.nn.calibration import BINS, TEMPERATURES
from dance_flwr.nn.mixture import MAX_LOSS, THOUSANDTHS

_GRID = len(TEMPERATURES)
# Split -> the largest sum of a node, and how many sums there are.
_CALIBRATION = {"val": (MAX_LOSS, _GRID), "test": (2 * THOUSANDTHS, _GRID * BINS)}
MAX_TOKENS = 2**40  # of one client in one run; as many calls or milliseconds


@dataclass(frozen=True)
class CountRules:
    """What an answer to EVALUATE may hold, of one client or summed over some.

    Attributes
    ----------
    views : that it may count, of which "deployed" is due
    nodes : rule for every count of nodes
    classes : how many there are; 0 = unknown
    tokens : rule for every count of tokens over the run, which come with those of the test split
    calibrated : whether sums for the calibration come with them, too
    """

    views: Sequence[str]
    nodes: Rule
    classes: int = 0
    tokens: Rule = field(default_factory=whole)
    calibrated: bool = False

    def fault(self, metrics: Mapping[str, Any], splits: Sequence[str]) -> str:
        """Return what is wrong with an answer that must count these splits; "" where nothing is."""
        by_class = list_of(self.nodes, self.classes, self.classes or MAX_CLASSES)
        table: dict[str, Rule] = {keys.WEIGHT: self.nodes}
        optional = {keys.correct_of(split, view) for split in splits for view in self.views}
        # A method may count fewer views than it has, but the deployed one is what is validated.
        optional -= {keys.correct_of(split, "deployed") for split in splits}
        # Tokens of the run come once, with the counts of the final model.
        if "test" in splits:
            table |= {keys.tokens_of(name): self.tokens for name in TOKEN_COUNTS}
            for split, (largest, size) in _CALIBRATION.items() if self.calibrated else ():
                # A number of nodes that is none breaks a rule of its own.
                nodes = n if type(n := metrics.get(keys.total_of(split))) is int else 0
                rule = list_of(whole(0, largest * nodes), size, size)
                table[keys.calibration_of(split)] = rule
        for split in splits:
            table[keys.total_of(split)] = self.nodes
            table |= {keys.correct_of(split, view): self.nodes for view in self.views}
            table |= {keys.per_class(split, name): by_class for name in PER_CLASS}
        if fault := entries_fault(metrics, table, optional):
            return fault
        # The weight of an evaluation is its number of nodes, so that it follows from the counts.
        if metrics[keys.WEIGHT] != (total := sum(metrics[keys.total_of(s)] for s in splits)):
            return f"expected {keys.WEIGHT} {total}, found {metrics[keys.WEIGHT]}"
        faults = [_counts_fault(metrics, split) for split in splits]
        return next(filter(None, [*faults, _tokens_fault(metrics)]), "")


def _tokens_fault(metrics: Mapping[str, Any]) -> str:
    """Return where more distinct chunks or tokens are said to be read than all together."""
    for what in ("chunks", "tokens"):
        once, all_ = (
            metrics.get(keys.tokens_of(f"{of}_{what}"), 0) for of in ("distinct", "evidence")
        )
        if once > all_:
            return f"expected at most {all_} distinct {what} of evidence, found {once}"
    return ""


def _counts_fault(metrics: Mapping[str, Any], split: str) -> str:
    """Return where hits, classes and nodes disagree: they are counts of the same nodes."""
    total = metrics[keys.total_of(split)]
    hits, predicted, actual = (metrics[keys.per_class(split, name)] for name in PER_CLASS)
    lengths = {len(hits), len(predicted), len(actual)}
    deployed = metrics[keys.correct_of(split, "deployed")]
    largest = max(
        value for key, value in metrics.items() if key.startswith(keys.correct_of(split, ""))
    )
    # Of any view, also of those that have no counts by class.
    if largest > total:
        return f"expected at most {total} hits on {split}, found {largest}"
    # Each node has one label and one prediction, so sums over classes are those of the split.
    if len(lengths) > 1 or (sum(predicted), sum(actual), sum(hits)) != (total, total, deployed):
        return (
            f"expected {total} nodes and {deployed} hits over the classes of {split}, found others"
        )
    rows = enumerate(zip(hits, predicted, actual, strict=True))
    # Hits of a class are among its nodes, and among those that were predicted as it.
    over = [place for place, row in rows if row[0] > min(row)]
    return f"expected fewer hits than nodes in class {over[0]} of {split}" if over else ""
