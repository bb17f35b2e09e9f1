"""Rows: what tables are made from, read from a study folder or from one file of compact rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        return _rows_of(_lines_of(Study(path)), path)
    if path.is_file():
        lines = _read_lines(path)
        try:
            return _rows_of(lines, path)
        except (KeyError, TypeError) as error:
            raise _foreign(path, error) from None
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
    lines = _lines_of(Study(study))
    if update and file.is_file():
        lines = _merge(lines, _read_lines(file))
    # One line per run keeps diffs short.
    write_text(file, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return len(lines)


def _read_lines(file: Path) -> list[Line]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise _foreign(file, error) from None


def _foreign(file: Path, error: Exception) -> UserError:
    return UserError(
        f"{file}: expected rows that dance-flwr tables --export wrote, found {error!r}"
    )


def _merge(new: Sequence[Line], old: Sequence[Line]) -> list[Line]:
    """Return the new lines, and the old cells and commands that are not among them.

    An old line stays below the defaults that it was written under: a key that did not exist when
    it was made stays unknown. A new line without a result replaces no old one with a result.
    """
    new = _lacking_none(new, old)
    commands = {line["experiment"]: line["commands"] for line in new if "commands" in line}
    cells = {_cell_key(use) for line in new for use in line.get("uses", ())}
    by_run = {
        (line["id"], origin): line
        for line in new
        if "id" in line
        for origin in (_origin(line), None)
    }
    merged = list(_with_defaults(new))
    for defaults, line in _with_defaults(old):
        if line["kind"] == "experiment":
            if line["experiment"] in commands:
                known = commands[line["experiment"]]
                # Older commands first, in the order in which they were run.
                known[:0] = [text for text in line["commands"] if text not in known]
            else:
                merged.append((defaults, line))
        elif uses := [use for use in line["uses"] if _cell_key(use) not in cells]:
            # What other code or another processor computed stays with the other cells.
            if (newer := by_run.get((line["id"], _origin(line)))) is not None:
                newer["uses"] += uses
                if CURVE in line.get("result", {}) and CURVE not in newer["result"]:
                    newer["result"] = line["result"]  # the other uses need it
            else:
                merged.append((defaults, line | {"uses": uses}))
    return _below_defaults(merged)


def _lacking_none(new: Sequence[Line], old: Sequence[Line]) -> list[Line]:
    """Return the new lines without cells whose only result is in the old lines."""
    made = {line["id"]: line for line in old if _is_made(line)}
    cells = {_cell_key(use) for line in made.values() for use in line["uses"]}
    lines: list[Line] = []
    for line in new:
        if "uses" in line and not _is_made(line):
            uses = [use for use in line["uses"] if _cell_key(use) not in cells]
            if line["id"] in made:  # another cell of a run that the old lines have
                made[line["id"]]["uses"] += uses
                uses = []
            if not uses:
                continue
            line = line | {"uses": uses}
        lines.append(line)
    return lines


def _is_made(line: Line) -> bool:
    return bool(line.get("result") or line.get("measure"))


def _origin(line: Line) -> tuple[Any, Any] | None:
    """Return the hashes of the code and model of a run; None without a result."""
    if not (result := line.get("result")):
        return None
    # Rows of an earlier format have the hash of the code under the second name.
    code = result.get("provenance", result.get("code_fingerprint"))
    return code, result.get("model_fingerprint")


def _with_defaults(lines: Iterable[Line]) -> Iterator[tuple[Line, Line]]:
    """Yield (defaults, line) of every other line; defaults hold until the next ones."""
    defaults: Line = {}
    for line in lines:
        if line["kind"] == "defaults":
            defaults = line["config"]
        else:
            yield defaults, line


def _below_defaults(pairs: Iterable[tuple[Line, Line]]) -> list[Line]:
    """Return the lines, each below its defaults, which appear once; undoes `_with_defaults`."""
    below: dict[str, list[Line]] = {}
    for defaults, line in pairs:
        first: Line = {"kind": "defaults", "config": defaults}
        below.setdefault(json.dumps(defaults, sort_keys=True), [first]).append(line)
    return [line for lines in below.values() for line in lines]


def _cell_key(use: Mapping[str, Any]) -> tuple[str, str]:
    return use["experiment"], label_key(use["labels"])


def _lines_of(study: Study) -> list[Line]:
    """Return the compact file: experiments, then runs and measurements with their uses.

    Lines stand below the defaults of the keys that their version knew, with the sections of every
    method, so that a run lacks the keys that came later.
    """
    today = {key: value for key, value in all_defaults().items() if key not in PLACES}
    pairs: list[tuple[Line, Line]] = []
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
            analysis = study.runs / cell["run"] / f"{cell['analysis']}.json"
            if cell["analysis"] and analysis.is_file():
                use["analysis"] = read_json(analysis)
            entry["uses"].append(use)
    pairs += [_line(study, key, entry, today) for key, entry in entries.items()]
    return _below_defaults(pairs)


def _line(
    study: Study, key: str, entry: Mapping[str, Any], today: Mapping[str, Value]
) -> tuple[Line, Line]:
    cell, defaults = entry["cell"], dict(today)
    line: Line = {"kind": "run" if cell["run"] else "measure", "id": key, "uses": entry["uses"]}
    if not cell["run"]:
        path = study.measures / f"{key}.json"
        return defaults, line | {"measure": read_json(path) if path.is_file() else {}}
    folder = study.runs / key
    if not (folder / RESULT).is_file():
        return defaults, line | {
            "config": changes(of_method(cell["config"]), defaults),
            "result": {},
        }
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


def _rows_of(lines: Iterable[Line], path: Path) -> Rows:
    commands: dict[str, Sequence[str]] = {}
    placed: dict[str, list[tuple[int, Row]]] = {}
    for defaults, line in _with_defaults(lines):
        if line["kind"] == "experiment":
            commands[line["experiment"]] = line["commands"]
        else:
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
