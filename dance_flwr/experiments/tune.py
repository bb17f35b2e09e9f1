"""Hyper-parameter search on validation: the same number of trials, rounds and seeds for every
method.

The sampler is optuna's TPE (Bergstra et al. 2011). Trials are asked for in batches and told in
their order, so a search depends on its seed alone and not on which worker is faster. The first
trial is the base configuration.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import PROJECT, RESULT
from dance_flwr.config.text import to_lines
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.errors import UserError
from dance_flwr.experiments.cells import Cell, base_values, dataset_name
from dance_flwr.experiments.runner import run_grid
from dance_flwr.experiments.study import Study, read_json, write_json
from dance_flwr.methods import get_spec

TUNED = PROJECT / "configs" / "tuned"
BATCH = 4  # trials asked for at once; fixed, so that a search does not depend on --jobs

Choices = tuple[Value, ...]
# What the paper searches (hidden width, mix, alpha, beta) and, for every method alike, what it
# fixes without a reason.
COMMON: dict[str, Choices] = {
    "hidden-dim": (64, 128),
    "learning-rate": (0.003, 0.01, 0.03),
    "weight-decay": (5e-5, 5e-4, 2e-3),
    "dropout": (0.1, 0.3, 0.5),
}


@dataclass(frozen=True)
class Search:
    """One search, and what it costs: `trials` * len(seeds) runs of `rounds` rounds.

    Attributes
    ----------
    overrides : flat keys that hold in every trial
    """

    dataset: str
    method: str
    trials: int
    rounds: int
    seeds: tuple[int, ...]
    overrides: Mapping[str, Value]

    @property
    def space(self) -> dict[str, Choices]:
        """Keys and the values to choose from; keys that `overrides` holds fixed are left out."""
        every = {**COMMON, **get_spec(self.method).search}
        return {key: values for key, values in every.items() if key not in self.overrides}

    def base(self) -> dict[str, Value]:
        """Return the flat keys of every trial, without those of an earlier search."""
        values = base_values(self.dataset, self.method, tuned=False)
        fixed: dict[str, Value] = {
            "data": self.dataset,
            "method": self.method,
            "rounds": self.rounds,
        }
        return values | fixed | {"dance.evidence-keep": "final", **self.overrides}

    def cells(self, number: int, chosen: Mapping[str, Value]) -> list[Cell]:
        """Return the runs of one trial."""
        values = self.base() | dict(chosen)
        return [
            Cell({"trial": number, "seed": seed}, parse(values | {"seed": seed}))
            for seed in self.seeds
        ]


def search(wanted: Search, study: Study, jobs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a search, or what is missing of it, and return the best trial: number, values and
    validation accuracy.

    Trials that failed count as the worst. Every trial is kept in `tune/<dataset>-<method>.json` of
    the study.

    Raises
    ------
    UserError : optuna is missing, or every trial failed
    """
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=max(4, wanted.trials // 2))
    asked = optuna.create_study(direction="maximize", sampler=sampler)
    asked.enqueue_trial(_defaults(wanted))
    done: list[dict[str, Any]] = []
    while len(done) < wanted.trials:
        batch = [asked.ask() for _ in range(min(BATCH, wanted.trials - len(done)))]
        chosen = [
            {key: trial.suggest_categorical(key, values) for key, values in wanted.space.items()}
            for trial in batch
        ]
        cells = [
            wanted.cells(trial.number, values) for trial, values in zip(batch, chosen, strict=True)
        ]
        run_grid(study, [cell for group in cells for cell in group], jobs, False, lambda line: None)
        for trial, values, group in zip(batch, chosen, cells, strict=True):
            score = _score(study, group)
            asked.tell(trial, 0.0 if score is None else score)
            done.append({"trial": trial.number, "values": values, "val_accuracy": score})
            shown = "failed" if score is None else f"{score:.4f}"
            say(f"trial {trial.number + 1}/{wanted.trials}  val accuracy {shown}")
    write_json(
        study.root / "tune" / f"{_name(wanted)}.json", {"space": wanted.space, "trials": done}
    )
    finished = [trial for trial in done if trial["val_accuracy"] is not None]
    if not finished:
        raise UserError(
            f"tune: expected a trial that finishes, found {len(done)} that failed; see {study.failed}"
        )
    return max(finished, key=lambda trial: trial["val_accuracy"])


def write_tuned(wanted: Search, best: Mapping[str, Any], folder: Path = TUNED) -> Path:
    """Write `configs/tuned/<dataset>-<method>.toml` with the search that found it; return its path."""
    seeds = " ".join(map(str, wanted.seeds))
    command = [
        "dance-flwr",
        "tune",
        "--dataset",
        dataset_name(wanted.dataset),
        "--method",
        wanted.method,
    ]
    command += [
        "--trials",
        str(wanted.trials),
        "--rounds",
        str(wanted.rounds),
        "--seeds",
        *seeds.split(),
    ]
    for key, value in wanted.overrides.items():
        command += ["--set", f"{key}={value}"]
    lines = [
        f"# Best of {wanted.trials} trials of {wanted.rounds} rounds, by validation over seeds {seeds}: "
        f"{100 * best['val_accuracy']:.2f} %.",
        f"# Found by: {shlex.join(command)}",
        *to_lines(best["values"]),
    ]
    path = folder / f"{_name(wanted)}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def _defaults(wanted: Search) -> dict[str, Value]:
    """Return the base configuration's values, or the nearest of the space."""
    config: RunConfig = parse(wanted.base())
    values = flatten(config)

    def nearest(key: str, choices: Sequence[Any]) -> Value:
        value: Any = values[key]
        return value if value in choices else min(choices, key=lambda choice: abs(choice - value))  # type: ignore[no-any-return]

    return {key: nearest(key, choices) for key, choices in wanted.space.items()}


def _score(study: Study, cells: Sequence[Cell]) -> float | None:
    """Return the mean validation accuracy over the seeds, None when a run failed."""
    if not all(study.has_run(cell.config) for cell in cells):
        return None
    return float(
        mean(read_json(study.run_folder(cell.config) / RESULT)["val_accuracy"] for cell in cells)
    )


def _name(wanted: Search) -> str:
    return f"{dataset_name(wanted.dataset)}-{wanted.method}"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            "tune: expected optuna, found none; install it with `pip install 'dance-flwr[tune]'`"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
