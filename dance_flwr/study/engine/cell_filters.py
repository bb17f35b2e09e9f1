"""Which cells of a grid a command runs: those with given labels, without those already published.

A long study can so be divided among machines, or continued on another one.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.fingerprint import provenance
from dance_flwr.study.engine.cells import Cell, Row
from dance_flwr.study.engine.folder import run_name
from dance_flwr.study.engine.rows import load_rows


def where(cells: Sequence[Cell], pairs: Sequence[str]) -> list[Cell]:
    """Return the cells that carry every label of `pairs`; several values of one label are a union.

    Parameters
    ----------
    pairs : LABEL=VALUE, as in `regime=text` or `variant=dance w/o NC`
    """
    wanted: dict[str, set[str]] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        # As text: a label may be a number, and the command line has strings.
        values = {str(cell.labels[name]) for cell in cells if name in cell.labels}
        if value not in values:
            names = sorted({label for cell in cells for label in cell.labels})
            expected = f"a {name} among {sorted(values)}" if values else f"a label among {names}"
            raise UserError(f"--where: expected {expected}, found {pair!r}")
        wanted.setdefault(name, set()).add(value)
    return [
        cell
        for cell in cells
        if all(str(cell.labels.get(name)) in values for name, values in wanted.items())
    ]


def unpublished(experiment: str, cells: Sequence[Cell], file: Path) -> list[Cell]:
    """Return the cells that a file of compact rows lacks, or that other code or settings made.

    Measurements are always among them: their rows do not say which code made them.
    """
    rows = load_rows(file).by_experiment.get(experiment, ())
    by_labels = {_key(row.labels): row for row in rows}
    code = provenance()
    return [cell for cell in cells if not _holds(by_labels.get(_key(cell.labels)), cell, code)]


def _holds(row: Row | None, cell: Cell, code: str) -> bool:
    if row is None or cell.measure:
        return False
    # Why provenance (decision 26): the name is a hash of the settings and says nothing of the code.
    same = row.name == run_name(cell.config) and row.result.get("provenance") == code
    return same and bool(row.analysis or not cell.analysis)


def _key(labels: Mapping[str, Any]) -> str:
    # Labels in another order are the same cell.
    return json.dumps(dict(labels), sort_keys=True)
