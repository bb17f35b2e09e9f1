"""`dance-flwr predict`: the table of predictions, and evidence beside it."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.predicting import (
    Log,
    Predictions,
    bundle_explainer,
    known_labels,
    open_data,
    predict_all,
)
from dance_flwr.config.paths import MODEL, RESULT, check_out
from dance_flwr.config.tree import parse_stored
from dance_flwr.data.card import run_folder
from dance_flwr.data.graphs.limits import listed
from dance_flwr.disk import atomic_file, atomic_path, write_json
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line, spreadsheet_cell
from dance_flwr.evidence.json_lines import evidence_lines, read_lines, verify_lines
from dance_flwr.evidence.pack import FUSED
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.run_files import FINAL
from dance_flwr.federation.privacy.dp import affordable_rounds
from dance_flwr.fingerprint import provenance
from dance_flwr.methods import get_spec
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.result import privacy_of

_NODES_PER_BLOCK = 16_384  # explained at once
_SUFFIXES = (".parquet", ".csv", ".jsonl")


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
    out : new file, `.parquet`, `.csv` or `.jsonl`. In a `.csv`, which people open in spreadsheets,
        an id or a class that would be a formula has an apostrophe in front
    evidence : new file of JSON lines, see `evidence_lines`; None = no evidence

    Raises
    ------
    UserError : a file exists, cannot be created or is named twice, the method keeps no evidence,
        or the data do not fit the model
    """
    if out.suffix not in _SUFFIXES:
        raise UserError(
            f"--out: expected a name that ends in {', '.join(_SUFFIXES)}, found {out}; the suffix "
            "decides the format"
        )
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
        predictions = predict_all(bundle, client)
        columns = predictions.to_dict()
        if evidence:
            draft = files.enter_context(atomic_path(evidence))
            columns |= _write_evidence(draft, bundle, client)
        _write_table(columns, out)
        _log_accuracy(data, client, predictions, log)
    log(f"predictions {out}: {counted(len(predictions), 'node')}, model {bundle.model_id}")


def verify(bundle: Bundle, data: str, evidence: Path, log: Log = print) -> None:
    """Compute evidence again, and compare every line with the file that `predict` wrote.

    Parameters
    ----------
    data : the same data as for `predict`

    Raises
    ------
    UserError : the file has another form; else names the first line and the entry that differs
    """
    lines = read_lines(evidence)  # before texts are encoded
    with open_data(bundle, data, log) as client:
        spans = verify_lines(bundle_explainer(bundle, client), lines, evidence, bundle.digest)
    log(
        f"evidence verified: {counted(spans, 'span')} of {counted(len(lines), 'node')}, model "
        f"{bundle.model_id}"
    )


def _write_table(columns: Mapping[str, list[Any]], out: Path) -> None:
    if out.suffix == ".csv":
        columns = {
            name: [spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in column]
            for name, column in columns.items()
        }
    table = pa.table(dict(columns))
    with atomic_file(out) as file:
        if out.suffix == ".parquet":
            pq.write_table(table, file)
        elif out.suffix == ".csv":
            pa_csv.write_csv(table, file)
        else:
            file.writelines(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


def _write_evidence(path: Path, bundle: Bundle, client: Client) -> dict[str, list[Any]]:
    """Write the evidence of every node; return what the evidence alone predicts, two columns."""
    names, ids = client.data.card.class_names, client.data.ids()
    explainer, classes, shares = bundle_explainer(bundle, client), list[str](), list[float]()
    with path.open("w", encoding="utf-8") as lines:
        for nodes in torch.split(torch.arange(len(ids)), _NODES_PER_BLOCK):
            packs = explainer.explain(nodes)
            for line in evidence_lines(packs, ids, names, bundle.digest):
                lines.write(json.dumps(line) + "\n")
            fused = torch.as_tensor(packs.probs[packs.stages.index(FUSED)]).max(dim=1)
            classes += [names[k] for k in fused.indices.tolist()]
            shares += fused.values.tolist()
    return {"evidence_predicted": classes, "evidence_probability": shares}


def _log_accuracy(data: str, client: Client, predictions: Predictions, log: Log) -> None:
    name, labels, lacking = known_labels(data, client)
    known = labels >= 0
    total = int(known.sum())
    if total:
        hits = int((predictions.labels == labels)[known].sum())
        log(f"accuracy    {hits / total:.4f} on {counted(total, f'{name} node')}")
    if lacking:
        names = listed(repr(one_line(of)) for of, _ in lacking.most_common())
        nodes = counted(lacking.total(), "node")
        log(f"not counted {nodes} of classes that the model lacks: {names}")


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
    config = parse_stored(facts["config"])
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


def read_final(client_folder: Path, run: str = "") -> tuple[Path, dict[str, Any]]:
    """Return the folder and the facts of the final model of a run, by default of the newest."""
    files = (
        [run_folder(client_folder, run) / FINAL] if run else client_folder.glob(f"runs/*/{FINAL}")
    )
    kept = sorted((file for file in files if file.is_file()), key=lambda file: file.stat().st_mtime)
    if not kept:
        raise UserError(
            f"{client_folder / 'runs'}: expected the final model of {run or 'a run'}, found none; "
            "a node receives it when the run ends"
        )
    return kept[-1].parent, json.loads(kept[-1].read_text(encoding="utf-8"))
