"""From rows to Markdown: groups over seeds, mean and deviation, and names that hide no difference
of settings.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.experiments.cells import Label, Row
from dance_flwr.experiments.paper import Printed

NOTHING = "\u2013"  # an en dash: no result behind it
# Settings that every compared row must share, or show: never a silent comparison. What a search
# chooses for each method by itself (width, learning rate, dropout) is in configs/tuned.
WATCHED = (
    *(
        "backbone",
        "smoothing",
        "ema-decay",
        "rounds",
        "local-epochs",
        "clients",
        "client-fraction",
        "partition",
    ),
    *(
        "dirichlet-alpha",
        "resolution",
        "split-mode",
        "train-ratio",
        "val-ratio",
        "encoder",
        "max-chunks",
    ),
    *("chunk-tokens", "strategy", "paper"),
)


@dataclass(frozen=True)
class Stat:
    """A mean over seeds.

    Attributes
    ----------
    mean : None without a result; std : sample standard deviation (n - 1), None below two results
    n : seeds with a result; asked : seeds asked for
    """

    mean: float | None
    std: float | None
    n: int
    asked: int

    @property
    def seeds(self) -> str:
        """Return "5", or "3 of 5" while some are missing."""
        return str(self.n) if self.n == self.asked else f"{self.n} of {self.asked}"

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """Return "mean ± std", the mean alone for one seed, a dash for none."""
        if self.mean is None:
            return NOTHING
        if self.std is None:
            return f"{scale * self.mean:.{digits}f}"
        return f"{scale * self.mean:.{digits}f} ± {scale * self.std:.{digits}f}"

    @property
    def percent(self) -> str:
        """The text of a share in percent, two digits."""
        return self.text(2, 100)


@dataclass(frozen=True)
class Group:
    """Rows that differ in the seed only.

    Attributes
    ----------
    labels : shared by the rows, without "seed"; note : settings in which it differs from what it is
        compared with
    """

    labels: Mapping[str, Label]
    rows: Sequence[Row]
    note: str = ""

    def stat(self, metric: "str | Callable[[Row], float | None]") -> Stat:
        """Return mean and deviation of a key of the results, or of what a function makes of a row
        with a result.
        """
        done = [row for row in self.rows if row.result]
        values = [
            row.result.get(metric) if isinstance(metric, str) else metric(row) for row in done
        ]
        return stat_of([value for value in values if value is not None], len(self.rows))

    def name(self, text: str) -> str:
        """Return `text` with the note, if there is one, in brackets."""
        return f"{text} ({self.note})" if self.note else text

    def setting(self, key: str) -> Value:
        """Return a configuration key, the same for all rows."""
        return self.rows[0].config[key]


def stat_of(values: Sequence[float], asked: int) -> Stat:
    """Return the statistics of the values that are there."""
    mean = statistics.fmean(values) if values else None
    return Stat(mean, statistics.stdev(values) if len(values) > 1 else None, len(values), asked)


def groups(rows: Sequence[Row]) -> list[Group]:
    """Return the rows grouped over seeds, in order of appearance; rows with other settings are
    other groups.

    Groups of one data set are compared: each is noted with the watched settings in which they
    differ, unless a label says so already, and groups with the same labels with every setting in
    which they differ.
    """
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(
            repr((_without_seed(row.labels), sorted(_settings(row).items()))), []
        ).append(row)
    made = [Group(_without_seed(part[0].labels), part) for part in parts.values()]
    return [Group(group.labels, group.rows, _note(group, made)) for group in made]


def _note(group: Group, others: Sequence[Group]) -> str:
    own = _settings(group.rows[0])
    rivals = [
        other for other in others if other.labels.get("dataset") == group.labels.get("dataset")
    ]
    keys: dict[str, None] = {}
    for other in rivals:
        settings = _settings(other.rows[0])
        twin = other.labels == group.labels
        different = [
            key for key in own.keys() | settings.keys() if own.get(key) != settings.get(key)
        ]
        keys |= dict.fromkeys(
            key for key in different if key not in group.labels and (twin or key in WATCHED)
        )
    return ", ".join(f"{key}={own.get(key, NOTHING)}" for key in sorted(keys))


def _settings(row: Row) -> dict[str, Value]:
    return {key: value for key, value in row.config.items() if key != "seed"}


def _without_seed(labels: Mapping[str, Label]) -> dict[str, Label]:
    return {key: value for key, value in labels.items() if key != "seed"}


def by_label(parts: Sequence[Group], label: str) -> dict[Any, list[Group]]:
    """Return value of a label -> its groups, in order of appearance."""
    found: dict[Any, list[Group]] = {}
    for group in parts:
        found.setdefault(group.labels[label], []).append(group)
    return found


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column to the left, the others to the right."""
    text = ["| " + " | ".join(headings) + " |", "| --- |" + " ---: |" * (len(headings) - 1)]
    return "\n".join([*text, *("| " + " | ".join(line) + " |" for line in lines)])


def printed(value: Printed) -> str:
    """Return a number of the paper as the paper prints it, a dash where it prints none."""
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else f"{value[0]:.2f} ± {value[1]:.2f}"


def difference(ours: Stat, value: Printed) -> str:
    """Return ours minus the paper's, in points with a sign; a dash where either is missing."""
    if ours.mean is None or value is None or isinstance(value, str):
        return NOTHING
    return f"{100 * ours.mean - value[0]:+.2f}"


def common(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """Return "key value" of the keys that all rows share, for the line above a table."""
    shared = []
    for key in keys:
        values = {row.config[key] for row in rows if key in row.config}
        if len(values) == 1:
            shared.append(f"{key} {values.pop()}")
    return ", ".join(shared)
