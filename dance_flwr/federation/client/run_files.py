"""The final model that a run leaves in a client's folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from dance_flwr.config.paths import MODEL
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.data.card import run_folder
from dance_flwr.disk import atomic_path, write_json
from dance_flwr.errors import UserError
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.metrics import Counts, accuracy
from dance_flwr.nn.calibration import TEMPERATURES, Calibration

FINAL = "final.json"
# Keys about the server's machine.
_OF_SERVER = ("data", "data-root", "out", "resume", "overwrite", "node-keys")


def keep_final(
    client_folder: Path,
    config: RunConfig,
    state: Mapping[str, Tensor],
    info: RoundInfo,
    counts: Mapping[str, Counts],
) -> None:
    """Store the final model of a run and its hits at a client that brings its own data."""
    folder = run_folder(client_folder, info.run)
    with atomic_path(folder / MODEL) as draft:
        draft.write_bytes(save({name: value.contiguous().cpu() for name, value in state.items()}))
    facts: dict[str, Any] = {
        "run": info.run,
        "method": config.method,
        "seed": config.seed,
        "best_round": info.round,
        "model_fingerprint": info.model_id,
        "config": {key: value for key, value in flatten(config).items() if key not in _OF_SERVER},
    }
    for split, of_split in counts.items():
        hits = accuracy(of_split.correct["deployed"], of_split.total)
        facts |= {f"{split}_accuracy": hits, f"{split}_nodes": of_split.total}
    # After the model, which is therefore complete if the facts exist.
    write_json(folder / FINAL, facts)


def keep_calibration(client_folder: Path, run: str, temperature: Any, nodes: Any) -> None:
    """Store the temperature of a run beside its final model, if the client has it.

    Parameters
    ----------
    temperature, nodes : from the server: T, and the nodes of all clients that it was fitted on

    Raises
    ------
    UserError : no honest server sends these values
    """
    if not (file := run_folder(client_folder, run) / FINAL).is_file():
        return
    # Only values of the grid: a temperature of 0 or NaN would make every probability 1.
    if type(nodes) is not int or temperature not in TEMPERATURES:
        raise UserError(
            f"temperature: expected one from {TEMPERATURES[0]} to {TEMPERATURES[-1]} that was "
            "fitted on validation nodes, found another; probabilities stay as they are"
        )
    facts = json.loads(file.read_text(encoding="utf-8"))
    write_json(file, facts | {"calibration": asdict(Calibration(float(temperature), nodes))})
