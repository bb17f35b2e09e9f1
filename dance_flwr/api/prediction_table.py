"""`dance-flwr predict`: the table of predictions, and evidence beside it, block by block."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.predicting import (
    Log,
    best_class,
    explainer_of,
    known_labels,
    open_data,
    predict_proba,
)
from dance_flwr.config.outputs import check_out
from dance_flwr.config.paths import MODEL, RESULT
from dance_flwr.config.tree import parse
from dance_flwr.disk import atomic_file, atomic_path, write_json
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.json_lines import evidence_lines, read_lines, verify_lines
from dance_flwr.evidence.pack import FUSED
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.run_files import read_final
from dance_flwr.federation.privacy.dp import affordable_rounds
from dance_flwr.fingerprint import provenance
from dance_flwr.methods import get_spec
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.result import privacy_of

_NODES_PER_BLOCK = 16_384  # written at once
_FIELDS = {
    "id": pa.string(),
    "predicted": pa.string(),
    "probability": pa.float64(),
    "margin": pa.float64(),
}
_OF_EVIDENCE = {"evidence_predicted": pa.string(), "evidence_probability": pa.float64()}
_MAX_NAMES = 3  # of classes that the model lacks
_SUFFIXES = (".parquet", ".csv", ".jsonl")
_TOLERANCE = 1e-4  # of a probability that another machine computes again
_Write = Callable[[Any], None]


def predict(
    bundle: Bundle,
    data: str,
    out: Path,
    evidence: Path | None = None,
    log: Log = print,
) -> None:
    """Predict every node of a graph, or of a client's folder, and write a table.

    Columns: `id`; `predicted` class, its calibrated `probability` and the `margin` to the second
    class; with evidence also `evidence_predicted` and `evidence_probability`, of the view that
    uses the evidence only.

    Parameters
    ----------
    data : folder of a graph (its labels are read only to print the accuracy), or folder of a client
        (its training labels are used as in the run)
    out : new file, `.parquet`, `.csv` or `.jsonl`
    evidence : new file of JSON lines, see `evidence_lines`; None = no evidence

    Raises
    ------
    UserError : a file exists, cannot be created or is named twice, the method keeps no evidence,
        or the data do not fit the model
    """
    _check_suffix("--out", out)
    for name, path in (("--out", out), ("--evidence", evidence)):
        if path is not None and path.exists():
            raise UserError(f"{name}: expected a new file, found {path}; choose another name")
        if path is not None:
            check_out(path, name)
    # Two names may lead to one file.
    if evidence and evidence.resolve() == out.resolve():
        raise UserError(
            f"--evidence: expected another file than --out, found {out} for both; choose another "
            "name"
        )
    if evidence and not get_spec(bundle.config.method).keeps_evidence:
        raise UserError(
            f"--evidence: expected a bundle of a method that keeps evidence, found one of "
            f"{bundle.config.method!r}; leave it out"
        )
    with open_data(bundle, data, log) as client, ExitStack() as files:
        probs, lines = predict_proba(bundle, client), None
        if evidence:
            lines = (files.enter_context(atomic_path(evidence))).open("w", encoding="utf-8")
            files.enter_context(lines)
        schema = pa.schema(_FIELDS | (_OF_EVIDENCE if lines else {}))
        write = files.enter_context(_table_writer(out, schema))
        for block in _blocks(lines, bundle, client, probs):
            write(pa.table(block, schema))
        _log_accuracy(data, client, probs, log)
    log(f"predictions {out}: {counted(len(probs), 'node')}, model {bundle.model_id}")


def verify(
    bundle: Bundle,
    data: str,
    predictions: Path | None = None,
    evidence: Path | None = None,
    log: Log = print,
) -> None:
    """Predict again, and compare every row of a table and every line of evidence.

    Parameters
    ----------
    data : the same data as for `predict`
    predictions, evidence : files that `predict` wrote; None = not compared

    Raises
    ------
    UserError : a file has another form; else names the first row, line, span or weight that differs
    """
    # Both before texts are encoded.
    rows = None if predictions is None else _read_rows(predictions)
    lines = None if evidence is None else read_lines(evidence)
    with open_data(bundle, data, log) as client:
        if predictions is not None and rows is not None:
            _verify_rows(bundle, client, rows, predictions)
            log(f"predictions verified: {counted(len(rows), 'node')}, model {bundle.model_id}")
        if evidence is not None and lines is not None:
            spans = verify_lines(explainer_of(bundle, client), lines, evidence, bundle.digest)
            log(
                f"evidence verified: {counted(spans, 'span')} of {counted(len(lines), 'node')}, "
                f"model {bundle.model_id}"
            )


def _verify_rows(bundle: Bundle, client: Client, rows: list[dict[str, Any]], path: Path) -> None:
    """Compare every row of a table with the predictions of the bundle."""
    blocks = _blocks(None, bundle, client, predict_proba(bundle, client))
    expected = [row for block in blocks for row in pa.table(block).to_pylist()]
    if len(rows) != len(expected):
        raise UserError(
            f"{path}: expected a row for each of the {len(expected):,} nodes of the data, found "
            f"{len(rows):,}; rows were removed or added, or name the data that were predicted"
        )
    for row, right in zip(rows, expected, strict=True):
        same = all(row[key] == right[key] for key in ("id", "predicted")) and all(
            abs(row[key] - right[key]) <= _TOLERANCE for key in ("probability", "margin")
        )
        if not same:
            raise UserError(
                f"{path}: expected {right} of the bundle, found {row}; the table, the texts, the "
                "edges or the bundle were altered"
            )


def _check_suffix(option: str, path: Path) -> None:
    if path.suffix not in _SUFFIXES:
        raise UserError(
            f"{option}: expected a name that ends in {', '.join(_SUFFIXES)}, found {path}; the "
            "suffix decides the format"
        )


@contextmanager
def _table_writer(out: Path, schema: Any) -> Iterator[_Write]:
    """Yield a function that appends an Arrow table to `out`, in the format of its suffix."""
    with atomic_file(out) as file:
        if out.suffix == ".jsonl":
            yield lambda table: file.writelines(
                json.dumps(row).encode() + b"\n" for row in table.to_pylist()
            )
            return
        kind = pq.ParquetWriter if out.suffix == ".parquet" else pa_csv.CSVWriter
        with kind(file, schema) as writer:
            yield writer.write_table


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table that `_table_writer` wrote."""
    _check_suffix("--predictions", path)
    try:
        if path.suffix == ".jsonl":
            records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            table = pa.Table.from_pylist(records, pa.schema(_FIELDS))
        elif path.suffix == ".csv":
            convert = pa_csv.ConvertOptions(column_types=_FIELDS, include_columns=list(_FIELDS))
            table = pa_csv.read_csv(path, convert_options=convert)
        else:
            table = pq.read_table(path, columns=list(_FIELDS)).cast(pa.schema(_FIELDS))
        if missing := [name for name in _FIELDS if table[name].null_count]:
            raise ValueError(f"rows without {', '.join(missing)}")
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise UserError(
            f"{path}: expected a table that `dance-flwr predict` wrote, found {error}"
        ) from None
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _blocks(
    lines: TextIO | None, bundle: Bundle, client: Client, probs: Tensor
) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of the table block by block, after writing the block's evidence."""
    names, ids = client.data.card.class_names, client.data.ids()
    explainer = explainer_of(bundle, client)
    for nodes in torch.split(torch.arange(len(probs)), _NODES_PER_BLOCK):
        first, last = int(nodes[0]), int(nodes[-1]) + 1
        predicted, probability, margin = best_class(bundle, probs[nodes])
        columns: dict[str, list[Any]] = {
            "id": ids[first:last],
            "predicted": [names[k] for k in predicted.tolist()],
            "probability": probability.tolist(),
            "margin": margin.tolist(),
        }
        if lines:
            packs = explainer.explain(nodes)
            for line in evidence_lines(packs, ids, names, bundle.digest):
                lines.write(json.dumps(line) + "\n")
            fused = torch.as_tensor(packs.probs[packs.stages.index(FUSED)]).max(dim=1)
            columns["evidence_predicted"] = [names[k] for k in fused.indices.tolist()]
            columns["evidence_probability"] = fused.values.tolist()
        yield columns


def _log_accuracy(data: str, client: Client, probs: Tensor, log: Log) -> None:
    """Log the accuracy on nodes with known labels, and how many have labels of other classes."""
    name, labels, unknown = known_labels(data, client)
    known = labels >= 0
    total, left_out = int(known.sum()), sum(unknown.values())
    if not total and not left_out:
        return
    # Before calibration, which changes no predicted class.
    hits = int((probs.argmax(dim=1) == labels)[known].sum())
    line = f"{hits / total:.4f} on {counted(total, f'{name} node')}" if total else "not known"
    if left_out:
        nodes = "more" if total else "node" if left_out == 1 else "nodes"
        has = "has a label" if left_out == 1 else "have labels"
        line += f"; {left_out:,} {nodes} {has} that the model lacks: {_names(unknown)}"
    log(f"accuracy    {line}")


def _names(counts: Mapping[str, int]) -> str:
    """Return the first few class names, and how many more there are."""
    first = ", ".join(f"'{one_line(name)}'" for name in list(counts)[:_MAX_NAMES])
    rest = len(counts) - _MAX_NAMES
    return f"{first} and {rest} more" if rest > 0 else first


def write_results(
    client_folder: Path, run: str, out: Path | None, home: Path, log: Callable[[str], None]
) -> tuple[Path, Bundle]:
    """Export the model that a node kept of a run, and predict every node of its client.

    Parameters
    ----------
    run : name of the run; "" = the newest one
    out : new folder; None = results/RUN in `home`

    Returns
    -------
    the folder with `predictions.csv` and `bundle/`, and the bundle
    """
    kept, facts = read_final(client_folder, run)
    folder = out or home / "results" / str(facts["run"])
    config = parse(facts["config"])
    # A site knows its own validation accuracy, but no test accuracy.
    unfitted = {"calibration": asdict(Calibration())}
    record = (
        unfitted
        | facts
        | {
            "privacy": privacy_of(config, affordable_rounds(config), 0),
            "provenance": provenance(),
            "history": [{"val_accuracy": facts["val_accuracy"]}],
            "clients": [],
            "test_accuracy": None,
            "test_macro_f1": None,
        }
    )
    if "calibration" not in facts:
        log(
            "warning     the node did not receive the temperature of the run, so probabilities are "
            "not those of the server's record"
        )
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        write_json(Path(scratch) / RESULT, record)
        shutil.copyfile(kept / MODEL, Path(scratch) / MODEL)
        bundle = export(Path(scratch), folder / "bundle", client_folder)
    predict(bundle, str(client_folder), folder / "predictions.csv", log=log)
    return folder, bundle
