"""Rows: what tables are made from, read from a study folder or from one file of compact rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import defaults as all_defaults
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError, counted
from dance_flwr.runs.result import read_result
from dance_flwr_studies import EXPERIMENTS
from dance_flwr_studies.engine.cells import Row
from dance_flwr_studies.engine.compact_rows import CURVE, compact
from dance_flwr_studies.engine.folder import (
    FACTS,
    PLACES,
    Study,
    changes,
    label_key,
    of_method,
    read_json,
)

Line = dict[str, Any]  # of a file of compact rows
Pair = tuple[Line, Line]  # the defaults of a line, and the line


@dataclass(frozen=True)
class Rows:
    """All rows of a study by experiment, in the order of the registry, and their commands."""

    by_experiment: Mapping[str, Sequence[Row]]
    commands: Mapping[str, Sequence[str]]

    def provenance(self) -> str:
        """Return one line: the number of runs, their devices, provenance of code, versions."""
        rows = [row for rows in self.by_experiment.values() for row in rows if row.result]
        runs = {row.name: row.result for row in rows}.values()
        if not runs:
            return "No finished runs."
        code = ", ".join(sorted({run.get("provenance", "unknown") for run in runs}))
        devices = ", ".join(sorted({device for run in runs for device in run["devices"]}))
        versions = sorted({f"{k} {v}" for run in runs for k, v in run["versions"].items()})
        return (
            f"{counted(len(runs), 'run')} on {devices}; provenance {code}; {', '.join(versions)}."
        )


def load_rows(path: Path) -> Rows:
    """Read a study folder or a file of compact rows; both give the same rows."""
    if path.is_dir():
        return _rows_of(_pairs_of(Study(path)), path)
    if path.is_file():
        return _rows_of(_read(path), path)
    raise UserError(
        f"expected a study folder or a .jsonl file of rows, found none at {path}; "
        "run an experiment first"
    )


def export_rows(study: Path, file: Path, update: bool = False) -> int:
    """Write each run and measurement of a study as one JSON line of 1 to 2 KB; return their number.

    Parameters
    ----------
    update : keep the cells in `file` that the study does not have

    Raises
    ------
    UserError : there is no study, or `file` holds something else
    """
    if not study.is_dir():
        raise UserError(f"--export: expected a study folder, found none at {study}")
    pairs = _pairs_of(Study(study))
    if update and file.is_file():
        pairs = _merged(pairs, _read(file))
    # Lines below the defaults that they were written under, which appear once.
    below: dict[str, list[Line]] = {}
    for defaults, line in pairs:
        first: Line = {"kind": "defaults", "config": defaults}
        below.setdefault(json.dumps(defaults, sort_keys=True), [first]).append(line)
    every = [line for lines in below.values() for line in lines]
    # One line per run keeps diffs short.
    write_text(file, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in every))
    return len(every)


def _read(file: Path) -> list[Pair]:
    """Return the lines of a file; defaults hold until the next ones."""
    pairs: list[Pair] = []
    defaults: Line = {}
    try:
        for text in filter(str.strip, file.read_text(encoding="utf-8").splitlines()):
            line = json.loads(text)
            if line["kind"] == "defaults":
                defaults = line["config"]
            elif line["commands" if line["kind"] == "experiment" else "uses"]:
                pairs.append((defaults, line))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: expected rows that dance-flwr tables --export wrote, found {error!r}"
        ) from None
    return pairs


def _merged(new: Sequence[Pair], old: Sequence[Pair]) -> list[Pair]:
    """Return the new cells and commands, and the old ones that are not among them.

    An old line stays below its own defaults: a key that did not exist when it was made stays
    unknown. A new cell without a result replaces no old one with a result.
    """
    experiments: dict[str, Pair] = {}
    cells: dict[tuple[str, str], tuple[Line, Line, Line]] = {}
    for pair in (*new, *old):
        defaults, line = pair
        if line["kind"] == "experiment":
            known = experiments.setdefault(line["experiment"], pair)[1]["commands"]
            # Older commands first, in the order in which they were run.
            known[:0] = [text for text in line["commands"] if text not in known]
        for use in line.get("uses", ()):
            key = use["experiment"], label_key(use["labels"])
            if key not in cells or (_is_made(line) and not _is_made(cells[key][1])):
                cells[key] = defaults, line, use
    # By run and what made it: other code or another processor computes another result.
    merged: dict[str, dict[str, Pair]] = {}
    for defaults, line, use in sorted(cells.values(), key=lambda cell: not _is_made(cell[1])):
        made = merged.setdefault(line["id"], {})
        # A cell without a result is one of the run that others have made.
        origin = _origin(line) if _is_made(line) or not made else next(iter(made))
        _, first = made.setdefault(origin, (defaults, line | {"uses": []}))
        first["uses"].append(use)
        if CURVE in line.get("result", {}):
            first["result"] = line["result"]
    return [*experiments.values(), *(pair for made in merged.values() for pair in made.values())]


def _is_made(line: Line) -> bool:
    return bool(line.get("result") or line.get("measure"))


def _origin(line: Line) -> str:
    """Return the hashes of the code and model of a run."""
    result = line.get("result", {})
    return f"{result.get('provenance')} {result.get('model_fingerprint')}"


def _pairs_of(study: Study) -> list[Pair]:
    """Return the lines of a study: experiments, then runs and measurements with their uses.

    Their defaults are those of the keys that their version knew, with the sections of every method,
    so that a run lacks the keys that came later.
    """
    today = {key: value for key, value in all_defaults().items() if key not in PLACES}
    pairs: list[Pair] = []
    entries: dict[str, dict[str, Any]] = {}
    for name in EXPERIMENTS:
        grid = study.grid(name)
        if not grid["cells"]:
            continue
        commands = {"kind": "experiment", "experiment": name, "commands": grid["commands"]}
        pairs.append((today, commands))
        for position, cell in enumerate(grid["cells"]):
            key = cell["run"] or cell["measure"]
            entry = entries.setdefault(key, {"curve": False, "cell": cell, "uses": []})
            entry["curve"] |= cell["curve"]
            use = {"experiment": name, "at": position, "labels": cell["labels"]}
            analysis = study.runs / cell["run"] / cell["analysis"]
            if cell["analysis"] and analysis.is_file():
                use["analysis"] = read_json(analysis)
            entry["uses"].append(use)
    return pairs + [_pair(study, key, entry, today) for key, entry in entries.items()]


def _pair(study: Study, key: str, entry: Mapping[str, Any], today: Mapping[str, Value]) -> Pair:
    cell, defaults = entry["cell"], dict(today)
    line: Line = {"kind": "run" if cell["run"] else "measure", "id": key, "uses": entry["uses"]}
    if not cell["run"]:
        path = study.measures / f"{key}.json"
        return defaults, line | {"measure": read_json(path) if path.is_file() else {}}
    folder = study.runs / key
    if not (folder / RESULT).is_file():
        config = changes(of_method(cell["config"]), defaults)
        return defaults, line | {"config": config, "result": {}}
    result = read_result(folder)
    # The run says what it knew: the grid may have been asked for by another version.
    made = result["config"] | {"data": cell["config"]["data"]}
    made = {name: made[name] for name in made if name in today or name in cell["config"]}
    # Keys of other methods count as known: else every method had defaults of its own.
    own = of_method({**today, **made})
    defaults = {key: value for key, value in today.items() if key in made or key not in own}
    facts = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
    line["config"] = changes(of_method(made), defaults)
    return defaults, line | {"result": compact(result, facts, entry["curve"])}


def _rows_of(pairs: Iterable[Pair], path: Path) -> Rows:
    commands: dict[str, Sequence[str]] = {}
    placed: dict[str, list[tuple[int, Row]]] = {}
    for defaults, line in pairs:
        if line["kind"] == "experiment":
            commands[line["experiment"]] = line["commands"]
            continue
        config = of_method(defaults | line["config"]) if "config" in line else {}
        for use in line["uses"]:
            row = Row(
                experiment=use["experiment"],
                labels=use["labels"],
                name=line["id"],
                config=config,
                result=line.get("result", {}),
                analysis=use.get("analysis", {}),
                measure=line.get("measure", {}),
            )
            placed.setdefault(use["experiment"], []).append((use["at"], row))
    ordered = {
        # By place alone, as rows cannot be compared.
        name: [row for _, row in sorted(placed[name], key=lambda item: item[0])]
        for name in EXPERIMENTS
        if name in placed
    }
    if not ordered:
        raise UserError(
            f"{path}: expected rows of an experiment, found none; run dance-flwr experiment first"
        )
    return Rows(ordered, commands)
