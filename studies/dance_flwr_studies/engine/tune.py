"""Hyper-parameter search on validation accuracy, with the same budget for every method.

The sampler is optuna's TPE (Bergstra et al. 2011). Trials are sampled in batches and reported in
order, so that a search depends on its seed alone and not on which worker is faster. The first trial
is the base configuration.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import check_out
from dance_flwr.config.text import to_lines, toml_value
from dance_flwr.config.tree import flatten, paper_values, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.disk import write_json, write_text
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec
from dance_flwr.runs.result import read_result
from dance_flwr_studies.engine.cell_filters import at_work
from dance_flwr_studies.engine.cells import (
    TUNED,
    Cell,
    base_values,
    dataset_name,
    disk_values,
    tuned_file,
)
from dance_flwr_studies.engine.folder import Study
from dance_flwr_studies.engine.runner import run_grid

_TRIALS = "tune"  # folder of a study
BATCH = 4  # trials sampled at once; fixed, so that a search does not depend on --jobs

Choices = tuple[Value, ...]
# Searched for every method, beside its spec's own keys: what the paper searches (hidden width),
# and what it fixes without a reason.
COMMON: dict[str, Choices] = {
    "hidden-dim": (64, 128),
    "learning-rate": (0.003, 0.01, 0.03),
    "weight-decay": (5e-5, 5e-4, 2e-3),
    "dropout": (0.1, 0.3, 0.5),
}


@dataclass(frozen=True)
class Search:
    """One search: `trials` * len(seeds) runs of `rounds` rounds.

    Attributes
    ----------
    overrides : flat keys of every trial, not searched
    """

    dataset: str
    method: str
    trials: int
    rounds: int
    seeds: tuple[int, ...]
    overrides: Mapping[str, Value]

    @property
    def space(self) -> dict[str, Choices]:
        """The values to choose from by flat key, without what `overrides` or `paper` fixes."""
        space = {**COMMON, **get_spec(self.method).search}
        fixed = {**self.overrides, **paper_values(self.overrides)}
        return {key: values for key, values in space.items() if key not in fixed}

    @property
    def rules(self) -> str:
        """Whose rules: "paper" under `paper = true`, which has a file of its own, or none."""
        return "paper" if self.overrides.get("paper") else ""

    def base(self) -> dict[str, Value]:
        """Return the flat keys of every trial, without the results of an earlier search."""
        values = base_values(self.dataset) | disk_values(self.method)
        values |= {"data": self.dataset, "method": self.method, "rounds": self.rounds}
        return values | dict(self.overrides)

    def cells(self, number: int, chosen: Mapping[str, Value]) -> list[Cell]:
        """Return the runs of one trial."""
        values = self.base() | dict(chosen)
        return [
            Cell({"trial": number, "seed": seed}, parse(values | {"seed": seed}))
            for seed in self.seeds
        ]


def search(plan: Search, study: Study, jobs: int, log: Callable[[str], None]) -> dict[str, Any]:
    """Run the missing trials of a search and return the best trial.

    Failed trials count as the worst. Every trial is stored in `tune/` of the study, as
    `<dataset>-<method>.json`.

    Returns
    -------
    "trial" (number), "values" (by flat key) and "val_accuracy" of the best trial

    Raises
    ------
    UserError : the study cannot be written, no client has validation nodes, or every trial failed
    """
    check_out(study.root / _TRIALS)
    import optuna  # takes half a second

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Without validation nodes, a search cannot compare trials.
    _check_validation(plan)
    # Half at random: the ten of TPE's default would be a whole search (decision 11).
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=max(4, plan.trials // 2))
    optimiser = optuna.create_study(direction="maximize", sampler=sampler)
    # Why first (decision 11): the method's own defaults compete, so no search does worse.
    optimiser.enqueue_trial(_defaults(plan))
    trials: list[dict[str, Any]] = []
    while len(trials) < plan.trials:
        batch = [optimiser.ask() for _ in range(min(BATCH, plan.trials - len(trials)))]
        choices: list[dict[str, Any]] = [
            {key: trial.suggest_categorical(key, values) for key, values in plan.space.items()}
            for trial in batch
        ]
        cells = [
            plan.cells(trial.number, values) for trial, values in zip(batch, choices, strict=True)
        ]
        with at_work(study.root, None):
            every = [cell for group in cells for cell in group]
            run_grid(study, every, jobs, False, lambda line: None)
        for trial, values, group in zip(batch, choices, cells, strict=True):
            score = _score(study, group)
            optimiser.tell(trial, 0.0 if score is None else score)
            trials.append({"trial": trial.number, "values": values, "val_accuracy": score})
            text = "failed" if score is None else f"{score:.4f}"
            log(f"trial {trial.number + 1}/{plan.trials}  val accuracy {text}")
    content = {"space": plan.space, "trials": trials}
    record = tuned_file(plan.dataset, plan.method, plan.rules, study.root / _TRIALS)
    write_json(record.with_suffix(".json"), content)
    finished = [trial for trial in trials if trial["val_accuracy"] is not None]
    if not finished:
        raise UserError(
            f"tune: expected at least one finished trial, found {len(trials)} that failed; "
            f"see {study.failed}"
        )
    # The first of equal trials, so that the defaults win a tie.
    return max(finished, key=lambda trial: trial["val_accuracy"])


def _check_validation(plan: Search) -> None:
    for cell in plan.cells(0, _defaults(plan)):
        clients = prepare(cell.config).manifest["clients"]
        if not any(client["nodes_per_split"]["val"] for client in clients):
            raise UserError(
                "tune: expected validation nodes, by which it chooses settings, found none in "
                f"{plan.dataset} with seed {cell.config.seed}; give the data a split with some"
            )


def write_tuned(plan: Search, best: Mapping[str, Any], folder: Path = TUNED) -> Path:
    """Write `<dataset>-<method>.toml` with the command that found it; return its path."""
    seeds = " ".join(map(str, plan.seeds))
    words = f"--trials {plan.trials} --rounds {plan.rounds} --seeds {seeds}".split()
    command = ["dance-flwr", "tune", "--dataset", dataset_name(plan.dataset)]
    command += ["--method", plan.method, *words]
    for key, value in plan.overrides.items():
        command += ["--set", f"{key}={toml_value(value)}"]
    lines = [
        f"# Best of {plan.trials} trials of {plan.rounds} rounds, by validation over seeds "
        f"{seeds}: {100 * best['val_accuracy']:.2f} %.",
        f"# Found by: {shlex.join(command)}",
        *to_lines(best["values"]),
    ]
    path = tuned_file(plan.dataset, plan.method, plan.rules, folder)
    write_text(path, "\n".join(lines) + "\n")
    return path


def _defaults(plan: Search) -> dict[str, Value]:
    """Return the base configuration's values, each replaced by the nearest in the space."""
    chosen: dict[str, Any] = dict(flatten(parse(plan.base())))
    for key, choices in plan.space.items():
        if chosen[key] not in choices:
            chosen[key] = min(choices, key=lambda choice: abs(choice - chosen[key]))
    return {key: chosen[key] for key in plan.space}


def _score(study: Study, cells: Sequence[Cell]) -> float | None:
    if not all(study.has_run(cell.config) for cell in cells):
        return None
    return float(mean(read_result(study.run_folder(cell.config))["val_accuracy"] for cell in cells))
