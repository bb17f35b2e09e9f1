"""Run a configuration in this process, for benchmarks."""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dance_flwr.commands import read_config
from dance_flwr.config import RunConfig
from dance_flwr.prepare import prepare
from dance_flwr.runtime import run_in_process


def configured(files: Sequence[str], pairs: Sequence[str], seed: int) -> RunConfig:
    """Return the configuration of these files and KEY=VALUE pairs with this seed."""
    return replace(read_config([Path(file) for file in files], pairs, {}), seed=seed)


def result_of(config: RunConfig) -> dict[str, Any]:
    """Prepare, run and return the result; the run's own files are thrown away."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    prepare(config)
    with tempfile.TemporaryDirectory() as folder:
        return run_in_process(config, Path(folder), lambda row: None)
