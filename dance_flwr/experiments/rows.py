"""Rows: what tables are made of, read from the files of finished runs or from one file of compact
rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import RESULT
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.experiments import EXPERIMENTS
from dance_flwr.experiments.cells import Row
from dance_flwr.experiments.study import FACTS, Study, changed, of_method, read_json, settings_of

WARM_ROUNDS = 5  # left out of timings: first use of memory, caches and kernels
_KEPT = (
    *(
        "test_accuracy",
        "val_accuracy",
        "test_macro_f1",
        "best_round",
        "test_accuracy_by_view",
        "nodes_per_client",
    ),
    *(
        "encoder_tokens",
        "per_condensed_node",
        "seconds_total",
        "seconds_per_round",
        "seconds_by_phase",
        "devices",
    ),
    *("model_fingerprint", "code_fingerprint", "versions"),
)


@dataclass(frozen=True)
class Rows:
    """All rows of a study, by experiment in the order of the registry, and the commands that asked
    for them.
    """

    by_experiment: Mapping[str, Sequence[Row]]
    commands: Mapping[str, Sequence[str]]

    def provenance(self) -> str:
        """Return one line: how many results, of which code, with which versions, on which devices."""
        runs = {
            row.name: row.result
            for rows in self.by_experiment.values()
            for row in rows
            if row.result
        }
        if not runs:
            return "No finished runs."
        code = sorted({run["code_fingerprint"] for run in runs.values()})
        devices = sorted({device for run in runs.values() for device in run["devices"]})
        versions = sorted({f"{k} {v}" for run in runs.values() for k, v in run["versions"].items()})
        return f"{len(runs)} runs of code {', '.join(code)} on {', '.join(devices)}; {', '.join(versions)}."


def load_rows(path: Path) -> Rows:
    """Read a study folder or a file of compact rows; both give the same rows.

    Raises
    ------
    UserError : there is neither, or a file is damaged
    """
    if path.is_dir():
        return _rows(_records(Study(path)), path)
    if path.is_file():
        lines = _lines(path)
        try:
            return _rows(lines, path)
        except (KeyError, TypeError) as error:
            raise _foreign(path, error) from None
    raise UserError(
        f"expected a study folder or a .jsonl file of rows, found none at {path}; run an experiment first"
    )


def export_rows(study: Path, file: Path, update: bool = False) -> int:
    """Write every row of a study folder as one JSON line, 1 to 2 KB each; return the number of
    lines.

    Parameters
    ----------
    update : keep the cells in `file` that the study does not have

    Raises
    ------
    UserError : there is no study, or `file` holds something else
    """
    if not study.is_dir():
        raise UserError(f"--export: expected a study folder, found none at {study}")
    records = _records(Study(study))
    if update and file.is_file():
        records = _joined(records, _lines(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.write_text(
        "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records), encoding="utf-8"
    )
    partial.replace(file)
    return len(records)


def _lines(file: Path) -> list[dict[str, Any]]:
    try:
        return [
            json.loads(line)
            for line in file.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
    except ValueError as error:
        raise _foreign(file, error) from None


def _foreign(file: Path, error: Exception) -> UserError:
    return UserError(
        f"{file}: expected rows that `dance-flwr report --export` wrote, found {error!r}"
    )


def _joined(new: Sequence[dict[str, Any]], old: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new lines, and of the old ones the cells and commands that are not among them.

    A key that the older version did not know has its default there.
    """
    commands = {
        line["experiment"]: line["commands"] for line in new if line["kind"] == "experiment"
    }
    mine = {_cell(use) for line in new for use in line.get("uses", ())}
    known = {line["id"]: line for line in new if "id" in line}
    defaults: Mapping[str, Value] = new[0]["config"]
    made = list(new)
    for line in old:
        if line["kind"] == "defaults":
            defaults = defaults | line["config"]
        elif line["kind"] == "experiment":
            others = [
                text
                for text in line["commands"]
                if text not in commands.get(line["experiment"], ())
            ]
            if line["experiment"] in commands:
                commands[line["experiment"]][:0] = others
            else:
                made.append(line)
        elif uses := [use for use in line["uses"] if _cell(use) not in mine]:
            if line["id"] in known:
                known[line["id"]]["uses"] += uses
                continue
            config = (
                {"config": changed(defaults | line["config"], new[0]["config"])}
                if "config" in line
                else {}
            )
            made.append(line | {"uses": uses} | config)
    return made


def _cell(use: Mapping[str, Any]) -> tuple[str, str]:
    """Return what no two cells share: their experiment and labels."""
    return use["experiment"], json.dumps(use["labels"], sort_keys=True)


def compact(result: Mapping[str, Any], facts: Mapping[str, Any], curve: bool) -> dict[str, Any]:
    """Return what tables need of a result: accuracies, seconds, bytes, counts, versions; the
    history only as means.

    Parameters
    ----------
    curve : keep the validation accuracy by round, 4 digits, null in rounds without validation
    """
    history = result["history"]
    warm = history[WARM_ROUNDS:]
    kept = {name: _rounded(result[name]) for name in _KEPT}
    clients = result["clients"]
    kept |= {
        "clients": {
            name: [row[name] for row in clients]
            for name in ("test_nodes", "test_accuracy", "val_accuracy")
        },
        "rounds": len(history),
        "bytes_up": _rounded(mean(_of_clients(history, "bytes_up"))),
        "bytes_down": _rounded(mean(_of_clients(history, "bytes_down"))),
        # Of the rounds after the first five; empty for shorter runs.
        "steady_seconds": _rounded(_phases(warm)) if warm else {},
        "facts": dict(facts),
    }
    if curve:
        values = [row["val_accuracy"] for row in history]
        kept["val_accuracy_by_round"] = [
            None if value is None else round(value, 4) for value in values
        ]
    return kept


def _phases(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return mean seconds per round: of every phase summed over clients, and of the round as a
    whole.
    """
    phases = {name: mean(row["seconds"][name] for row in history) for name in history[0]["seconds"]}
    return phases | {"total": mean(row["train_seconds"] for row in history)}


def _of_clients(history: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [value for row in history for value in row[name].values()] or [0.0]


def _rounded(value: Any) -> Any:
    """Return timings and means with 6 significant digits; accuracies need more for no table."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return (
        {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _records(study: Study) -> list[dict[str, Any]]:
    """Return the lines of the compact file: defaults, experiments, then every run and measurement
    with its uses.
    """
    defaults = settings_of(RunConfig())
    lines: list[dict[str, Any]] = [{"kind": "defaults", "config": defaults}]
    things: dict[str, dict[str, Any]] = {}
    for name in EXPERIMENTS:
        grid = study.grid(name)
        if not grid["cells"]:
            continue
        lines.append({"kind": "experiment", "experiment": name, "commands": grid["commands"]})
        for position, cell in enumerate(grid["cells"]):
            thing = things.setdefault(
                cell["run"] or cell["measure"], {"curve": False, "cell": cell, "uses": []}
            )
            thing["curve"] |= cell["curve"]
            use = {"experiment": name, "at": position, "labels": cell["labels"]}
            analysis = study.runs / cell["run"] / f"{cell['analysis']}.json"
            if cell["analysis"] and analysis.is_file():
                use["analysis"] = read_json(analysis)
            thing["uses"].append(use)
    for key, thing in things.items():
        lines.append(_record(study, key, thing, defaults))
    return lines


def _record(
    study: Study, key: str, thing: Mapping[str, Any], defaults: Mapping[str, Value]
) -> dict[str, Any]:
    cell = thing["cell"]
    line = {"kind": "run" if cell["run"] else "measure", "id": key, "uses": thing["uses"]}
    if not cell["run"]:
        path = study.measures / f"{key}.json"
        return line | {"measure": read_json(path) if path.is_file() else {}}
    settings = of_method(cell["config"])
    line["config"] = changed(settings, defaults)
    folder = study.runs / key
    if not (folder / RESULT).is_file():
        return line | {"result": {}}
    facts = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
    return line | {"result": compact(read_json(folder / RESULT), facts, thing["curve"])}


def _rows(lines: Iterable[Mapping[str, Any]], path: Path) -> Rows:
    defaults: Mapping[str, Value] = {}
    commands: dict[str, Sequence[str]] = {}
    placed: dict[str, list[tuple[int, Row]]] = {}
    for line in lines:
        if line["kind"] == "defaults":
            defaults = line["config"]
        elif line["kind"] == "experiment":
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
        name: [row for _, row in sorted(placed[name], key=_place)]
        for name in EXPERIMENTS
        if name in placed
    }
    if not ordered:
        raise UserError(
            f"{path}: expected rows of an experiment, found none; run `dance-flwr experiment` first"
        )
    return Rows(ordered, commands)


def _place(item: tuple[int, Row]) -> int:
    return item[0]
