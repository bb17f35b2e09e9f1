"""`dance-flwr predict`: the table of predictions, and evidence beside it, block by block."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.conformal import conformal_threshold, prediction_sets
from dance_flwr.api.prediction.predicting import (
    Log,
    best_class,
    explainer_of,
    known_labels,
    open_data,
    predict_proba,
)
from dance_flwr.client_data.validated import labelled_nodes
from dance_flwr.config.outputs import check_out
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.disk import atomic_file, atomic_path
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.json_lines import evidence_lines, read_lines, verify_lines
from dance_flwr.evidence.pack import FUSED
from dance_flwr.federation.client.client import Client
from dance_flwr.methods import get_spec

_NODES_PER_BLOCK = 16_384  # written at once
_FIELDS = {
    "id": pa.string(),
    "predicted": pa.string(),
    "probability": pa.float64(),
    "margin": pa.float64(),
}
_OF_EVIDENCE = {"evidence_predicted": pa.string(), "evidence_probability": pa.float64()}
_OF_SETS = {"classes": pa.string()}
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
    *,
    coverage: float | None = None,
) -> None:
    """Predict every node of a graph, or of a client's folder, and write a table.

    Columns: `id`; `predicted` class, its calibrated `probability` and the `margin` to the second
    class; with evidence also `evidence_predicted` and `evidence_probability`, of the view that
    rests on the evidence alone; with a coverage also `classes`, the set of classes in JSON.

    Parameters
    ----------
    data : folder of a graph, whose labels are read only to print the accuracy, or a client's
        folder, whose training labels count as in the run
    out : new file, `.parquet`, `.csv` or `.jsonl`
    evidence : new file of JSON lines, see `evidence_lines`; None = none
    coverage : share of nodes whose class is to be in their set, which the validation nodes of a
        client decide; None = no sets

    Raises
    ------
    UserError : a file exists, cannot be created or is named twice, the method keeps no evidence,
        the data do not fit the model, or are too few for the coverage
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
        sets = None if coverage is None else _sets(bundle, client, probs, coverage, log)
        if evidence:
            lines = (files.enter_context(atomic_path(evidence))).open("w", encoding="utf-8")
            files.enter_context(lines)
        fields = _FIELDS | (_OF_EVIDENCE if lines else {})
        schema = pa.schema(fields | ({} if sets is None else _OF_SETS))
        write = files.enter_context(_table_writer(out, schema))
        for block in _blocks(lines, bundle, client, probs):
            if sets is not None:
                block["classes"], sets = sets[: len(block["id"])], sets[len(block["id"]) :]
            write(pa.table(block, schema))
        _log_accuracy(data, client, probs, log)
    log(f"predictions {out}: {counted(len(probs), 'node')}, model {bundle.model_id}")


def _sets(bundle: Bundle, client: Client, probs: Tensor, coverage: float, log: Log) -> list[str]:
    """Return the conformal set of every node as JSON, and log what they cover of the test nodes."""
    data, names = client.data, client.data.card.class_names
    probs = bundle.calibration.apply(probs)
    val, test = (labelled_nodes(data, split) for split in (VAL, TEST))
    inside = prediction_sets(probs, conformal_threshold(probs[val], data.labels[val], coverage))
    size = float(inside.sum(dim=1).float().mean())
    line = (
        f"sets for {coverage:g} by {counted(len(val), 'validation node')}, {size:.2f} classes "
        "in the mean"
    )
    if len(test):
        measured = float(inside[test, data.labels[test]].float().mean())
        line += f"; {measured:.4f} of {len(test):,} test nodes have theirs inside"
    log(f"coverage    {line}")
    return [
        json.dumps([name for name, member in zip(names, row, strict=True) if member])
        for row in inside.tolist()
    ]


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
    data : what was predicted, as in `predict`
    predictions, evidence : files that `predict` wrote; None = not compared

    Raises
    ------
    UserError : a file is none of these, or names the first row, line, span or weight that does not
        agree
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
    """Compare every row of a table with what the bundle predicts."""
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
    """Log the accuracy on the nodes whose labels are known, and how many it leaves out."""
    for name, labels, unknown in known_labels(data, client):
        known = labels >= 0
        total, left_out = int(known.sum()), sum(unknown.values())
        if not total and not left_out:
            continue
        # Before calibration, which changes no predicted class.
        hits = int((probs.argmax(dim=1) == labels)[known].sum())
        line = f"{hits / total:.4f} on {counted(total, f'{name} node')}" if total else "not known"
        if left_out:
            nodes = "more" if total else "node" if left_out == 1 else "nodes"
            has = "has a label" if left_out == 1 else "have labels"
            line += f"; {left_out:,} {nodes} {has} that the model lacks: {_names(unknown)}"
        log(f"accuracy    {line}")


def _names(counts: Mapping[str, int]) -> str:
    """Return the first few names of classes, and how many more there are."""
    first = ", ".join(f"'{one_line(name)}'" for name in list(counts)[:_MAX_NAMES])
    rest = len(counts) - _MAX_NAMES
    return f"{first} and {rest} more" if rest > 0 else first
