"""What an experiment is: a list of runs or measurements, and how their rows become tables and
pictures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError

Label = str | int | float
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Row:
    """One cell of an experiment with what is known of it.

    Attributes
    ----------
    name : of the run or measurement; experiments may share one
    config : every flat key that decides the result, also of a run that is still missing; empty for
        a measurement
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
    config : the run; two cells with the same settings share one run. A measurement needs none
    analysis : name in `ANALYSES`, run on the finished run; its dict is `<run folder>/<name>.json`
    measure : "module:function", called as function(labels) -> dict, one at a time in a process of
        its own, instead of a run
    curve : the validation accuracy of every round is kept in exported rows
    """

    labels: Mapping[str, Label]
    config: RunConfig = field(default_factory=RunConfig)
    analysis: str = ""
    measure: str = ""
    curve: bool = False


@dataclass(frozen=True)
class Request:
    """What was asked on the command line, or an experiment's defaults.

    Attributes
    ----------
    datasets : names, or folders of graphs; methods : names in `METHODS`
    rounds : communication rounds of every run, None for those of the configuration
    ratios : condensation ratios, none for those of the paper
    overrides : flat configuration keys that win over everything else
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS
    rounds: int | None = None
    overrides: Mapping[str, Value] = field(default_factory=dict)
    ratios: tuple[float, ...] = ()

    def config(
        self, dataset: str, method: str, seed: int, settings: Mapping[str, Value] | None = None
    ) -> RunConfig:
        """Return the configuration of one cell; `settings` are the cell's own flat keys.

        Later ones win: configs/DATASET.toml, configs/tuned/DATASET-METHOD.toml, `settings`, rounds,
        overrides.

        Raises
        ------
        UserError : a file is no TOML, or an override would change what the experiment itself
            varies, so that the cell's labels would be wrong; ConfigError : unknown keys or values
            out of range
        """
        for key, value in (settings or {}).items():
            if self.overrides.get(key, value) != value:
                raise UserError(
                    f"--set {key}: expected a key that this experiment does not set itself, found {key}, which it sets "
                    f"to {value}; leave it out"
                )
        values: dict[str, Value] = {**base_values(dataset, method)}
        values |= {"data": dataset, "method": method, "seed": seed, "dance.evidence-keep": "final"}
        values |= dict(settings or {})
        if self.rounds is not None:
            values["rounds"] = self.rounds
        return parse(values | dict(self.overrides))


@dataclass(frozen=True)
class Picture:
    """One figure of a report, written as PNG and SVG.

    Attributes
    ----------
    name : stem of its files; caption : one sentence, also its alternative text
    draw : draws on an empty `matplotlib.figure.Figure`
    size : width and height in inches
    """

    name: str
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (6.5, 4.0)


@dataclass(frozen=True)
class Section:
    """What an experiment shows: Markdown blocks and pictures in reading order; title and command
    come around it.
    """

    parts: tuple[str | Picture, ...]


@dataclass(frozen=True)
class Experiment:
    """One protocol of the study.

    Attributes
    ----------
    name : on the command line; title : its heading; question : the paper's claim that it tests
    cells : what is to be run for a request
    render : tables and pictures of its rows; rows without a result are among them, and no number
        may stand for those
    datasets, methods, seeds : what is run when nobody says otherwise; no methods = all
    serial : one run at a time, for timings
    by_ratio : it has cells for each condensation ratio that is asked for
    """

    name: str
    title: str
    question: str
    cells: Callable[[Request], list[Cell]]
    render: "Callable[[Sequence[Row]], Section]"
    datasets: tuple[str, ...] = ("cora", "citeseer")
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    serial: bool = False
    by_ratio: bool = False


def dataset_name(dataset: str) -> str:
    """Return the short name of a data set or of a folder with one."""
    return (
        Path(dataset).expanduser().resolve().name if "/" in dataset or "\\" in dataset else dataset
    )


def base_values(dataset: str, method: str, *, tuned: bool = True) -> dict[str, Value]:
    """Return the flat keys of the committed files for this data set and method; missing files count
    as empty.

    Parameters
    ----------
    tuned : with configs/tuned/DATASET-METHOD.toml, what a search on validation found
    """
    from dance_flwr.config.reading import read_values

    name = dataset_name(dataset)
    files = [PROJECT / "configs" / f"{name}.toml"]
    files += [PROJECT / "configs" / "tuned" / f"{name}-{method}.toml"] if tuned else []
    return read_values([path for path in files if path.is_file()], [])
