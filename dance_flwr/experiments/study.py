"""The folder of a study: runs by content, measurements by labels, and which experiment asked for
which of them.

`runs/<dataset>-<method>-seed<k>-<hash>/` holds result.json, facts.json, model.safetensors and the
analyses; `measures/<function>-<hash>.json` one measurement each; `grids/<experiment>.json` the
cells and the commands that asked for them; `failed/<name>.txt` the traceback of a cell that failed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig, flatten, section_types
from dance_flwr.errors import UserError
from dance_flwr.experiments.cells import Cell, dataset_name
from dance_flwr.methods import get_spec

FACTS = "facts.json"
# Where a run is made, never what it computes.
PLACES = ("data-root", "out", "resume", "device", "torch-threads")


def settings_of(config: RunConfig) -> dict[str, Value]:
    """Return the flat keys that decide a result; the data set by its short name, wherever it lies."""
    return of_method(flatten(config)) | {"data": dataset_name(config.data)}


def of_method(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that the run's method may read, without places.

    Of the sections of plug-ins these are its own.
    """
    own = {section.name for section in get_spec(str(settings["method"])).sections}
    others = {section.name for section in section_types()} - own
    return {
        key: value
        for key, value in settings.items()
        if key not in PLACES and key.partition(".")[0] not in others
    }


def run_name(config: RunConfig) -> str:
    """Return `<dataset>-<method>-seed<k>-<12 hex>` of a run; the hex digits stand for what it
    changes of the defaults.

    So a key that a later version adds moves no run; a default that a later version changes is seen
    by `has_run`.
    """
    settings = settings_of(config)
    defaults = settings_of(RunConfig(method=config.method)) | {"method": RunConfig.method}
    text = json.dumps(changed(settings, defaults), sort_keys=True)
    return f"{settings['data']}-{config.method}-seed{config.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def changed(settings: Mapping[str, Value], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that are not the default."""
    return {
        key: value
        for key, value in settings.items()
        if key not in defaults or defaults[key] != value
    }


def measure_name(cell: Cell) -> str:
    """Return `<function>-<12 hex>` of a measurement; the hex digits stand for the function and the
    cell's labels.
    """
    text = json.dumps([cell.measure, dict(cell.labels)], sort_keys=True)
    return f"{cell.measure.rpartition(':')[2]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Study:
    """Paths of a study, and what is already there.

    Parameters
    ----------
    root : the study's folder; made when the first file is written
    """

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.runs, self.measures = self.root / "runs", self.root / "measures"
        self.grids, self.failed = self.root / "grids", self.root / "failed"

    def run_folder(self, config: RunConfig) -> Path:
        """Return where the run of this configuration is, or will be."""
        return self.runs / run_name(config)

    def product(self, cell: Cell) -> Path:
        """Return the last file that a cell needs: its measurement, its analysis, or its result."""
        if cell.measure:
            return self.measures / f"{measure_name(cell)}.json"
        folder = self.run_folder(cell.config)
        return folder / (f"{cell.analysis}.json" if cell.analysis else RESULT)

    def found(self, cell: Cell) -> bool:
        """Whether everything that a cell needs is there."""
        return self.product(cell).is_file() and (bool(cell.measure) or self.has_run(cell.config))

    def has_run(self, config: RunConfig) -> bool:
        """Whether the run of this configuration is finished, and no setting of it meant something
        else then.
        """
        path = self.run_folder(config) / RESULT
        if not path.is_file():
            return False
        made, asked = read_json(path)["config"], settings_of(config)
        return all(
            made[key] == value for key, value in asked.items() if key in made and key != "data"
        )

    def remember(self, experiment: str, command: str, cells: Sequence[Cell]) -> None:
        """Note that an experiment asks for these cells; cells asked for before stay unless their
        labels are here.
        """
        old = self.grid(experiment)
        entries = {_key(entry["labels"]): entry for entry in old["cells"]}
        for cell in cells:
            entries[_key(cell.labels)] = {
                "labels": dict(cell.labels),
                "run": "" if cell.measure else run_name(cell.config),
                "measure": measure_name(cell) if cell.measure else "",
                "analysis": cell.analysis,
                "curve": cell.curve,
                "config": {} if cell.measure else settings_of(cell.config),
            }
        commands = [line for line in old["commands"] if line != command] + [command]
        content = {"experiment": experiment, "commands": commands, "cells": list(entries.values())}
        write_json(self.grids / f"{experiment}.json", content)

    def grid(self, experiment: str) -> dict[str, Any]:
        """Return what `remember` noted for an experiment; empty when it never ran here."""
        path = self.grids / f"{experiment}.json"
        return (
            read_json(path)
            if path.is_file()
            else {"experiment": experiment, "commands": [], "cells": []}
        )


def write_json(path: Path, content: Any) -> None:
    """Write JSON through a `.partial` file, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    UserError : it cannot be read as JSON
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: expected JSON, found {error}; remove the file and run the experiment again"
        ) from None


def _key(labels: Mapping[str, Any]) -> str:
    return json.dumps(dict(labels), sort_keys=True)
