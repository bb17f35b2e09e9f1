"""The folder of a study: runs named by their settings, measurements by their labels, and grids.

- `runs/<dataset>-<method>-seed<k>-<hash>/`: result.json, facts.json, model.safetensors, analyses
- `measures/<function>-<hash>.json`: one measurement each
- `grids/<experiment>.json`: the cells of an experiment and the commands that asked for them
- `failed/<name>.txt`: the traceback of a cell that failed
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig, flatten, section_types
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError
from dance_flwr.methods import get_spec
from dance_flwr.runs.result import read_result
from dance_flwr_studies.engine.cells import Cell, dataset_name

FACTS = "facts.json"
# Where and how a run is executed, never what it computes.
PLACES = (
    *("data-root", "out", "resume", "overwrite", "device", "torch-threads"),
    *("round-timeout", "node-timeout"),
)


def settings_of(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys that decide a result; the data set is its short name, not its folder."""
    return of_method(flatten(config) | {"data": dataset_name(config.data)})


def of_method(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that the run's method may read: no places, no sections of others."""
    sections = {section.name for section in get_spec(str(settings["method"])).sections}
    # Why (decision 11): a new baseline with keys of its own renames no run.
    foreign = {section.name for section in section_types()} - sections
    return {
        key: value
        for key, value in settings.items()
        if key not in PLACES and key.partition(".")[0] not in foreign
    }


def run_name(config: RunConfig) -> str:
    """Return `<dataset>-<method>-seed<k>-<12 hex>` of a run; the digits hash non-default settings.

    Keys that a later version adds therefore rename no run. `has_run` detects changed defaults.
    """
    settings = settings_of(config)
    defaults = settings_of(RunConfig(method=config.method)) | {"method": RunConfig.method}
    text = json.dumps(changes(settings, defaults), sort_keys=True)
    return f"{settings['data']}-{config.method}-seed{config.seed}-{_digest(text)}"


def changes(settings: Mapping[str, Value], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that differ from the defaults."""
    return {
        key: value
        for key, value in settings.items()
        if key not in defaults or defaults[key] != value
    }


def cell_name(cell: Cell) -> str:
    """Return `run_name`, or `<function>-<12 hex>` of a measurement, by function and labels."""
    if not cell.measure:
        return run_name(cell.config)
    text = json.dumps([cell.measure, dict(cell.labels)], sort_keys=True)
    return f"{cell.measure.rpartition(':')[2]}-{_digest(text)}"


def analysis_file(target: str) -> str:
    """Return the name of the file of an analysis, in the run's folder; "" for none."""
    return f"{target.rpartition(':')[2]}.json" if target else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Study:
    """The paths of a study, and which results exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.runs, self.measures = self.root / "runs", self.root / "measures"
        self.grids, self.failed = self.root / "grids", self.root / "failed"

    def run_folder(self, config: RunConfig) -> Path:
        """Return the folder of the run of this configuration, which need not exist."""
        return self.runs / run_name(config)

    def product(self, cell: Cell) -> Path:
        """Return the last file that a cell needs: its measurement, its analysis, or its result."""
        if cell.measure:
            return self.measures / f"{cell_name(cell)}.json"
        return self.run_folder(cell.config) / (analysis_file(cell.analysis) or RESULT)

    def has(self, cell: Cell) -> bool:
        """Whether every file that a cell needs exists."""
        return self.product(cell).is_file() and (bool(cell.measure) or self.has_run(cell.config))

    def has_run(self, config: RunConfig) -> bool:
        """Whether a finished run has these settings; settings unknown to it are ignored."""
        folder = self.run_folder(config)
        if not (folder / RESULT).is_file():
            return False
        stored = read_result(folder)["config"]
        return all(
            stored[key] == value
            for key, value in settings_of(config).items()
            # A result names the folder of the data, the settings its short name.
            if key in stored and key != "data"
        )

    def remember(self, experiment: str, command: str, cells: Sequence[Cell]) -> None:
        """Record the cells of an experiment; earlier cells with other labels stay."""
        old = self.grid(experiment)
        entries = {label_key(entry["labels"]): entry for entry in old["cells"]}
        for cell in cells:
            entries[label_key(cell.labels)] = {
                "labels": dict(cell.labels),
                "run": "" if cell.measure else cell_name(cell),
                "measure": cell_name(cell) if cell.measure else "",
                "analysis": analysis_file(cell.analysis),
                "curve": cell.curve,
                "config": {} if cell.measure else settings_of(cell.config),
            }
        # A repeated command moves to the end.
        commands = [line for line in old["commands"] if line != command] + [command]
        content = {"experiment": experiment, "commands": commands, "cells": list(entries.values())}
        write_json(self.grids / f"{experiment}.json", content)

    def grid(self, experiment: str) -> dict[str, Any]:
        """Return the recorded cells and commands of an experiment; empty if it never ran here."""
        path = self.grids / f"{experiment}.json"
        if not path.is_file():
            return {"experiment": experiment, "commands": [], "cells": []}
        return read_json(path)  # type: ignore[no-any-return]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected JSON, found {error}; remove the file and run the experiment again"
        ) from None


def label_key(labels: Mapping[str, Any]) -> str:
    """Return labels as text; labels in another order are the same cell."""
    return json.dumps(dict(labels), sort_keys=True)
