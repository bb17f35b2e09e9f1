"""`dance-flwr predict`: the table of predictions, and evidence beside it, block by block."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dance_flwr.api.prediction.bundle import Bundle
from dance_flwr.api.prediction.predicting import (
    Log,
    best_class,
    explainer_of,
    known_labels,
    open_data,
    predict_proba,
)
from dance_flwr.config.outputs import check_out
from dance_flwr.disk import atomic_file, atomic_path
from dance_flwr.errors import UserError
from dance_flwr.escaping import one_line
from dance_flwr.evidence.json_lines import evidence_lines
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
_MAX_NAMES = 3  # of classes that the model lacks


def predict(
    bundle: Bundle, data: str, out: Path, evidence: Path | None = None, log: Log = print
) -> None:
    """Predict every node of a graph, or of a client's folder, and write a table.

    Columns: `id`; `predicted` class, its calibrated `probability` and the `margin` to the second
    class; with evidence also `evidence_predicted` and `evidence_probability`, of the view that
    rests on the evidence alone.

    Parameters
    ----------
    data : folder of a graph, whose labels are read only to print the accuracy, or a client's
        folder, whose training labels count as in the run
    out : new file; evidence : new file of JSON lines, see `evidence_lines`; None = none

    Raises
    ------
    UserError : a file exists, cannot be created or is named twice, the method keeps no evidence, or
        the data do not fit the model
    """
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
        probs = predict_proba(bundle, client)
        table, lines = files.enter_context(atomic_file(out)), None
        if evidence:
            lines = (files.enter_context(atomic_path(evidence))).open("w", encoding="utf-8")
            files.enter_context(lines)
        _write(table, lines, bundle, client, probs)
        _log_accuracy(data, client, probs, log)
    log(f"predictions {out}: {len(probs):,} nodes, model {bundle.model_id}")


def _write(
    table: BinaryIO, lines: TextIO | None, bundle: Bundle, client: Client, probs: Tensor
) -> None:
    names, ids = client.data.card.class_names, client.data.ids()
    fields = dict(_FIELDS) | (dict(_OF_EVIDENCE) if lines else {})
    explainer = explainer_of(bundle, client)
    with pq.ParquetWriter(table, pa.schema(fields)) as writer:
        for nodes in torch.split(torch.arange(len(probs)), _NODES_PER_BLOCK):
            first, last = int(nodes[0]), int(nodes[-1]) + 1
            predicted, probability, margin = best_class(bundle, probs[nodes])
            columns = {
                "id": ids[first:last],
                "predicted": [names[k] for k in predicted.tolist()],
                "probability": probability.tolist(),
                "margin": margin.tolist(),
            }
            if lines:
                packs = explainer.explain(nodes)
                for line in evidence_lines(packs, ids, names):
                    lines.write(json.dumps(line) + "\n")
                fused = torch.as_tensor(packs.probs[packs.stages.index(FUSED)]).max(dim=1)
                columns |= {"evidence_predicted": [names[k] for k in fused.indices.tolist()]}
                columns |= {"evidence_probability": fused.values.tolist()}
            writer.write_table(pa.table(columns, pa.schema(fields)))


def _log_accuracy(data: str, client: Client, probs: Tensor, log: Log) -> None:
    """Log the accuracy on the nodes whose labels are known, and how many it leaves out."""
    for name, labels, unknown in known_labels(data, client):
        known = labels >= 0
        total, left_out = int(known.sum()), sum(unknown.values())
        if not total and not left_out:
            continue
        # Before calibration, which changes no predicted class.
        hits = int((probs.argmax(dim=1) == labels)[known].sum())
        line = f"{hits / total:.4f} on {total:,} {name} nodes" if total else "not known"
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
