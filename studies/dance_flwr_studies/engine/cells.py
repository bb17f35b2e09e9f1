"""What an experiment is: runs or measurements, and how their rows become tables and pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.text import read_values
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec

Label = str | int | float
SEEDS = (5, 6, 7, 8, 9)  # no configuration was chosen on them: searches use the seeds below 5
CONFIGS = PROJECT / "configs"
TUNED = Path(__file__).parents[1] / "tuned"
ACCURACIES = {"accuracy": "test_accuracy", "macro-F1": "test_macro_f1"}


@dataclass(frozen=True)
class Row:
    """One cell of an experiment with its settings and results.

    Attributes
    ----------
    name : of the run or measurement; experiments may share one
    config : every flat key that decides the result, also of a run that is not finished yet; empty
        for a measurement
    result : what `compact` keeps of result.json and facts.json; empty = no result
    analysis, measure : the dict of the cell's analysis or measurement; empty = none
    """

    experiment: str
    labels: Mapping[str, Label]
    name: str = ""
    config: Mapping[str, Value] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    analysis: Mapping[str, Any] = field(default_factory=dict)
    measure: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One run of a grid, or one measurement.

    Attributes
    ----------
    labels : what tables group by: dataset, method, ratio, seed, variant, ...; no two cells of an
        experiment share them
    config : of the run; cells with the same settings share one run. A measurement needs none
    analysis : "module:function", called as function(run_folder, config, partition_folder) -> dict
        on the finished run, whose folder keeps it as `<function>.json`
    measure : "module:function", called as function(labels) -> dict instead of a run; measurements
        run one at a time, each in its own process
    curve : keep the validation accuracy of every round in exported rows
    """

    labels: Mapping[str, Label]
    config: RunConfig = field(default_factory=RunConfig)
    analysis: str = ""
    measure: str = ""
    curve: bool = False


@dataclass(frozen=True)
class Request:
    """What the command line asks for, or an experiment's defaults.

    Attributes
    ----------
    datasets : names, or folders of graphs; methods : names in `METHODS`
    rounds : communication rounds of every run; None = those of the configuration
    ratios : condensation ratios; empty = those of the paper
    overrides : flat configuration keys that win over everything else
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS
    rounds: int | None = None
    overrides: Mapping[str, Value] = field(default_factory=dict)
    ratios: tuple[float, ...] = ()

    def config(
        self,
        dataset: str,
        method: str,
        seed: int,
        settings: Mapping[str, Value] | None = None,
        rules: str = "",
    ) -> RunConfig:
        """Return the configuration of one cell.

        Later ones win: configs/DATASET.toml, the method's file in configs/tuned, `settings`,
        rounds, overrides.

        Raises
        ------
        UserError : a file is not valid TOML, or an override contradicts a setting of the cell, so
            that its labels would be wrong
        ConfigError : unknown keys or values out of range
        """
        for key, value in (settings or {}).items():
            if self.overrides.get(key, value) != value:
                raise UserError(
                    f"--set {key}: expected a key that this experiment does not set itself, found "
                    f"{key}, which it sets to {value}; omit it"
                )
        values: dict[str, Value] = {**base_values(dataset), **disk_values(method)}
        values |= tuned_values(dataset, method, rules)
        values |= {"data": dataset, "method": method, "seed": seed, **(settings or {})}
        if self.rounds is not None:
            values["rounds"] = self.rounds
        return parse(values | dict(self.overrides))

    def cells(
        self,
        dataset: str,
        method: str,
        labels: Mapping[str, Label],
        settings: Mapping[str, Value] | None = None,
        rules: str = "",
    ) -> "list[Cell]":
        """Return a cell for each seed; `labels` stand beside data set, method and seed."""
        shared: dict[str, Label] = {"dataset": dataset_name(dataset), "method": method, **labels}
        return [
            Cell({**shared, "seed": seed}, self.config(dataset, method, seed, settings, rules))
            for seed in self.seeds
        ]


@dataclass(frozen=True)
class Picture:
    """One figure of a report, written as PNG and SVG.

    Attributes
    ----------
    name : stem of its files, also its alternative text; caption : below it
    draw : draws on an empty `matplotlib.figure.Figure`
    size : width and height in inches
    """

    name: str
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (6.5, 4.0)


@dataclass(frozen=True)
class Section:
    """What an experiment shows; the report adds the title, the claim and the commands.

    Attributes
    ----------
    parts : Markdown blocks and pictures in reading order
    summary : Markdown of a few lines, for the report's first page
    """

    parts: tuple[str | Picture, ...]
    summary: str = ""


@dataclass(frozen=True)
class Experiment:
    """One protocol of the study.

    Attributes
    ----------
    title : its heading; question : the paper's claim that it tests
    cells : returns what to run for a request
    render : returns tables and pictures of its rows; rows without a result are among them and must
        not show a number
    datasets, methods, seeds : what to run by default; no methods = all
    serial : run one cell at a time, for timings
    by_ratio : it has cells for each requested condensation ratio
    reads : names of experiments whose rows `render` is given after its own
    verdict : returns in Markdown whether the claim holds in the rows that `render` is given; None
        where the question is no claim
    metrics : heading -> key of the results, of the columns in NAME.csv; empty = none
    """

    title: str
    question: str
    cells: Callable[[Request], list[Cell]]
    render: "Callable[[Sequence[Row]], Section]"
    datasets: tuple[str, ...] = ("cora", "citeseer")
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    serial: bool = False
    by_ratio: bool = False
    reads: tuple[str, ...] = ()
    verdict: "Callable[[Sequence[Row]], str] | None" = None
    metrics: Mapping[str, str] = field(default_factory=lambda: ACCURACIES)


def default_methods() -> tuple[str, ...]:
    """Return the methods that an experiment runs by default: all that ask no language model."""
    return tuple(name for name in METHODS if not get_spec(name).card.needs_llm)


def dataset_name(dataset: str) -> str:
    """Return the short name of a data set, or of the folder that holds it."""
    # A bare name is a data set, even beside a folder of that name.
    is_folder = "/" in dataset or "\\" in dataset
    return Path(dataset).expanduser().resolve().name if is_folder else dataset


def disk_values(method: str) -> dict[str, Value]:
    """Return the flat keys that keep the disk use of a run of this method small."""
    # Packs of every refresh of hundreds of runs would fill a disk.
    sections = {section.name for section in get_spec(method).sections}
    return {"dance.evidence-keep": "final"} if "dance" in sections else {}


def base_values(dataset: str) -> dict[str, Value]:
    """Return the flat keys of configs/DATASET.toml; empty without that file."""
    if not CONFIGS.is_dir():
        raise UserError(
            f"expected the configurations of dance-flwr in {CONFIGS}, found none; install it again"
        )
    return _values_of(CONFIGS / f"{dataset_name(dataset)}.toml")


def tuned_file(dataset: str, method: str, rules: str = "", folder: Path | None = None) -> Path:
    """Return the file of the tuned settings of a method on a data set; it need not exist.

    Parameters
    ----------
    rules : "paper" = of the method under `paper = true`, which is searched by itself
    folder : None = configs/tuned
    """
    name = "-".join(part for part in (dataset_name(dataset), method, rules) if part)
    return (folder or TUNED) / f"{name}.toml"


def tuned_values(dataset: str, method: str, rules: str = "") -> dict[str, Value]:
    """Return the flat keys of `tuned_file`; empty without that file."""
    return _values_of(tuned_file(dataset, method, rules))


def _values_of(path: Path) -> dict[str, Value]:
    return read_values([path], []) if path.is_file() else {}
