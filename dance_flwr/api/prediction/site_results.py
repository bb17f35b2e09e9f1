"""The results of a run at a site: a bundle of the model that its node kept, and its predictions."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from dance_flwr.api.prediction.bundle import Bundle, export
from dance_flwr.api.prediction.table import predict
from dance_flwr.config.paths import MODEL, RESULT
from dance_flwr.config.tree import parse
from dance_flwr.disk import write_json
from dance_flwr.federation.client.run_files import read_final
from dance_flwr.federation.privacy.dp import affordable_rounds
from dance_flwr.fingerprint import provenance
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.result import privacy_of


def write_results(
    client_folder: Path, run: str, out: Path | None, home: Path, log: Callable[[str], None]
) -> tuple[Path, Bundle]:
    """Export the model that a node kept, and predict every node of its client.

    Parameters
    ----------
    run : its name; "" = the newest one
    out : new folder; None = results/RUN in `home`

    Returns
    -------
    the folder with `predictions.csv` and `bundle/`, and that bundle
    """
    kept, facts = read_final(client_folder, run)
    folder = out or home / "results" / str(facts["run"])
    config = parse(facts["config"])
    # What a site knows of the run's record: its own validation, and nobody's test nodes.
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
