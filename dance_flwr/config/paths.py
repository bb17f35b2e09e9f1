"""Where prepared data and results live when nobody says otherwise."""

import os
from pathlib import Path

from dance_flwr.config.sections import DataConfig
from dance_flwr.config.tree import RunConfig

MANIFEST = "manifest.json"  # of a partition, beside its client folders
# Of a run's folder.
SETTINGS = "resume.toml"
RESULT, MODEL, HISTORY, ERROR = "result.json", "model.safetensors", "history.jsonl", "error.txt"
# Of a client's folder of a run.
STATE, PREVIOUS = "state.npz", "previous.npz"
PROJECT = Path(__file__).resolve().parents[2]


def data_root(config: DataConfig) -> Path:
    """Return `data-root`, else $DANCE_FLWR_HOME, else ~/.cache/dance-flwr; absolute."""
    chosen = config.data_root or os.environ.get("DANCE_FLWR_HOME") or "~/.cache/dance-flwr"
    return Path(chosen).expanduser().resolve()


def out_dir(config: RunConfig, run: str) -> Path:
    """Return `out`, else runs/<data>-<method>-<run> under the data root; absolute."""
    if config.out:
        return Path(config.out).expanduser().resolve()
    return data_root(config) / "runs" / f"{Path(config.data).name}-{config.method}-{run}"
