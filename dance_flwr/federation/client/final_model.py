"""The final model of a run, as a node that brings its own data keeps it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from dance_flwr.config.paths import MODEL
from dance_flwr.config.tree import flatten
from dance_flwr.data.card import run_folder
from dance_flwr.disk import atomic_path, write_json
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import Client
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Counts, accuracy
from dance_flwr.nn.calibration import TEMPERATURES, Calibration

FACTS = "final.json"
# Keys about the server's machine.
_OF_SERVER = ("data", "data-root", "out", "resume", "overwrite", "node-keys")


def keep_final(
    client: Client, state: Mapping[str, Tensor], info: RoundInfo, counts: Mapping[str, Counts]
) -> None:
    """Store the model that the run ends with and its hits here, in the run's folder."""
    folder = run_folder(client.data.folder, info.run)
    with atomic_path(folder / MODEL) as draft:
        save_file({name: tensor.contiguous().cpu() for name, tensor in state.items()}, draft)
    config = flatten(client.config)
    facts: dict[str, Any] = {
        "run": info.run,
        "method": client.config.method,
        "seed": client.config.seed,
        "best_round": info.round,
        "model_fingerprint": info.model_id,
        "config": {key: value for key, value in config.items() if key not in _OF_SERVER},
    }
    for split, of_split in counts.items():
        hits = accuracy(of_split.correct["deployed"], of_split.total)
        facts |= {f"{split}_accuracy": hits, f"{split}_nodes": of_split.total}
    # After the model: where the facts are, the model is whole.
    write_json(folder / FACTS, facts)


def keep_calibration(client_folder: Path, run: str, temperature: Any, nodes: Any) -> None:
    """Store the temperature of a run beside the model that was kept of it; nowhere without one.

    Parameters
    ----------
    temperature, nodes : as the server sends them: T, and the nodes of all clients it was fitted on

    Raises
    ------
    UserError : no server of a run sends these
    """
    if not (file := run_folder(client_folder, run) / FACTS).is_file():
        return
    # Of the grid alone: a temperature of 0 or NaN would make every probability one.
    if type(nodes) is not int or temperature not in TEMPERATURES:
        raise UserError(
            f"temperature: expected one from {TEMPERATURES[0]} to {TEMPERATURES[-1]} that was "
            "fitted on validation nodes, found another; probabilities stay as they are"
        )
    facts = json.loads(file.read_text(encoding="utf-8"))
    write_json(file, facts | {"calibration": asdict(Calibration(float(temperature), nodes))})


def read_final(client_folder: Path, run: str = "") -> tuple[Path, dict[str, Any]]:
    """Return the folder and the facts of a kept model; of the newest run if none is named."""
    files = (
        [run_folder(client_folder, run) / FACTS] if run else client_folder.glob(f"runs/*/{FACTS}")
    )
    kept = sorted((file for file in files if file.is_file()), key=lambda file: file.stat().st_mtime)
    if not kept:
        raise UserError(
            f"{client_folder / 'runs'}: expected the final model of {run or 'a run'}, found none; "
            "a node receives it when the run ends"
        )
    return kept[-1].parent, json.loads(kept[-1].read_text(encoding="utf-8"))
