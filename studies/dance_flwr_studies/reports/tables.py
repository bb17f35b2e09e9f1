"""From rows to Markdown: groups over seeds, statistics, and names that show differing settings."""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import Label, Row
from dance_flwr_studies.reports.paper_values import Printed

Metric = str | Callable[[Row], float | None]
NOTHING = "\u2013"  # an en dash: no result
# Settings that all compared rows must share, or that their names show. What a search chooses per
# method (width, learning rate, dropout) is in configs/tuned.
WATCHED = (
    "backbone",
    "smoothing",
    "ema-decay",
    "rounds",
    "local-epochs",
    "clients",
    "client-fraction",
    "partition",
    "dirichlet-alpha",
    "resolution",
    "max-client-nodes",
    "split-mode",
    "train-ratio",
    "val-ratio",
    "labels-per-class",
    "foreign-text-ratio",
    "random-edge-ratio",
    "text-pooling",
    "edge-gates",
    "class-prior",
    "label-reuse",
    "encoder",
    "max-chunks",
    "chunk-tokens",
    "strategy",
    "paper",
)


@dataclass(frozen=True)
class Stat:
    """A mean over seeds.

    Attributes
    ----------
    mean : None without a result
    std : sample standard deviation (n - 1), None below two results
    n : seeds with a result; requested : seeds in all
    """

    mean: float | None
    std: float | None
    n: int
    requested: int

    @property
    def seeds(self) -> str:
        """Return "5", or "3 of 5" while some are missing."""
        return str(self.n) if self.n == self.requested else f"{self.n} of {self.requested}"

    @property
    def missing(self) -> str:
        """Return " (3 of 5)" while some of the seeds are missing, but not all; otherwise ""."""
        return f" ({self.seeds})" if 0 < self.n < self.requested else ""

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """Return "mean ± std", the mean alone for one seed, a dash for none."""
        if self.mean is None:
            return NOTHING
        if self.std is None:
            return f"{scale * self.mean:.{digits}f}"
        return f"{scale * self.mean:.{digits}f} ± {scale * self.std:.{digits}f}"

    @property
    def percent(self) -> str:
        """The text of a share in percent, two digits, and how many seeds it is of if some miss."""
        return f"{self.text(2, 100)}{self.missing}"

    @property
    def points(self) -> str:
        """The text of a difference of shares in points, with a sign."""
        return f"+{self.percent}" if self.mean is not None and self.mean >= 0 else self.percent


@dataclass(frozen=True)
class Group:
    """Rows that differ in the seed only.

    Attributes
    ----------
    labels : shared by the rows, without "seed"
    note : settings in which it differs from the groups that it is compared with
    """

    labels: Mapping[str, Label]
    rows: Sequence[Row]
    note: str = ""

    def stat(self, metric: Metric) -> Stat:
        """Return mean and deviation of a metric over the rows with a result.

        Parameters
        ----------
        metric : a key of the results, or a function of a row; None counts as missing
        """
        values = [value_of(row, metric) for row in self.rows]
        return stat_of([value for value in values if value is not None], len(self.rows))

    def mean_text(self, metric: Metric, digits: int) -> str:
        """Return the mean of a metric alone, a dash where there is none."""
        stat = self.stat(metric)
        return NOTHING if stat.mean is None else f"{stat.mean:.{digits}f}{stat.missing}"

    def by_seed(self, metric: Metric) -> dict[Label, float]:
        """Return seed -> value of a metric over the rows that have one."""
        values = {row.labels["seed"]: value_of(row, metric) for row in self.rows}
        return {seed: float(value) for seed, value in values.items() if value is not None}

    def name(self, text: str) -> str:
        """Return `text`, with the note in brackets if there is one."""
        return f"{text} ({self.note})" if self.note else text

    def setting(self, key: str) -> Value:
        """Return a configuration key, the same for all rows."""
        return self.rows[0].config[key]


def value_of(row: Row, metric: Metric) -> float | None:
    """Return a metric of a row; None without a result, or where the result does not have it."""
    if not row.result:
        return None
    return row.result.get(metric) if isinstance(metric, str) else metric(row)


def stat_of(values: Sequence[float], requested: int) -> Stat:
    """Return the statistics of the values of `requested` seeds; missing ones are not among them."""
    mean = statistics.fmean(values) if values else None
    # n - 1: the seeds are a sample.
    std = statistics.stdev(values) if len(values) > 1 else None
    return Stat(mean, std, len(values), requested)


def groups(rows: Sequence[Row], stated: Collection[str] = ()) -> list[Group]:
    """Group rows over seeds, in order of appearance; rows with other settings form other groups.

    A setting that a row does not have is unknown, as it is older than the setting: such rows form
    groups of their own. Groups of one data set are compared. Each is noted with the watched
    settings in which they differ, unless a label shows them or the method prefers them; groups with
    equal labels are noted with every setting in which they differ.

    Parameters
    ----------
    stated : settings that the names of groups state without a note
    """
    parts: dict[str, list[Row]] = {}
    for row in rows:
        key = repr((_without_seed(row.labels), sorted(_settings(row).items())))
        parts.setdefault(key, []).append(row)
    compared = [Group(_without_seed(part[0].labels), part) for part in parts.values()]
    return [Group(group.labels, group.rows, _note(group, compared, stated)) for group in compared]


def _note(group: Group, others: Sequence[Group], stated: Collection[str]) -> str:
    mine = _settings(group.rows[0])
    named = {*stated, *_preferred(mine)} & mine.keys()  # no name tells a value that is not known
    keys: set[str] = set()
    for other in others:
        if other.labels.get("dataset") != group.labels.get("dataset"):
            continue
        theirs = _settings(other.rows[0])
        twin = other.labels == group.labels
        different = {key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)}
        different -= group.labels.keys()
        keys |= {key for key in different if twin or (key in WATCHED and key not in named)}
    known = [f"{key}={mine[key]}" for key in sorted(keys & mine.keys())]
    unknown = sorted(keys - mine.keys())
    if len(unknown) > 3:
        unknown = [f"{unknown[0]} and {len(unknown) - 1} other settings"]
    return ", ".join([*known, *([f"older than {', '.join(unknown)}"] if unknown else [])])


def _preferred(settings: Mapping[str, Value]) -> set[str]:
    """Return the keys that have the value that the method prefers: its name implies them."""
    if "method" not in settings:
        return set()
    reading = get_spec(str(settings["method"])).reading
    values = {name.replace("_", "-"): value for name, value in reading.items()}
    return {key for key, value in values.items() if settings.get(key) == value}


def _settings(row: Row) -> dict[str, Value]:
    return {key: value for key, value in row.config.items() if key != "seed"}


def _without_seed(labels: Mapping[str, Label]) -> dict[str, Label]:
    return {key: value for key, value in labels.items() if key != "seed"}


def by_label(parts: Sequence[Group], label: str) -> dict[Any, list[Group]]:
    """Return value of a label -> its groups, in order of appearance."""
    members: dict[Any, list[Group]] = {}
    for group in parts:
        members.setdefault(group.labels[label], []).append(group)
    return members


def at_largest_ratio(compared: Sequence[Group]) -> list[Group]:
    """Return the groups without those whose method and variant have one at a larger ratio."""

    def key(group: Group) -> tuple[Label | None, ...]:
        return group.labels["method"], group.labels.get("variant"), group.note

    def ratio(group: Group) -> float:
        return 1.0 if group.labels["ratio"] == "full" else float(group.labels["ratio"])

    largest: dict[tuple[Label | None, ...], Group] = {}
    for group in compared:
        if key(group) not in largest or ratio(group) > ratio(largest[key(group)]):
            largest[key(group)] = group
    return list(largest.values())


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]], keys: int = 1) -> str:
    """Return a Markdown table without the lines and columns in which no cell has a value.

    It is "" if none has one. The first column is aligned left, the others right.

    Parameters
    ----------
    keys : number of the first columns, which name a line and are no values
    """

    def has_value(cell: str) -> bool:
        return bool(cell.strip(f"{NOTHING}/ "))

    lines = [line for line in lines if any(map(has_value, line[keys:]))]
    used = [i for i in range(len(headings)) if any(has_value(line[i]) for line in lines)]
    if not lines:
        return ""
    rule = "| --- |" + " ---: |" * (len(used) - 1)
    first, *rest = (table_line([line[i] for i in used]) for line in (headings, *lines))
    return "\n".join([first, rule, *rest])


def table_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def paper_text(value: Printed) -> str:
    """Return a number as the paper prints it, a dash where it prints none."""
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else f"{value[0]:.2f} ± {value[1]:.2f}"


def shared_settings(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """Return "key value" of the keys that all rows share, for the line above a table.

    A key that a row does not have is unknown there, and so not shared.
    """
    shared = []
    for key in keys:
        values = {row.config.get(key, NOTHING) for row in rows}
        if len(values) == 1 and NOTHING not in values:
            shared.append(f"{key} {values.pop()}")
    return ", ".join(shared)
