"""Build the configs of the messages of a run, the record that says what a message asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from dance_flwr.federation.wire import keys

if TYPE_CHECKING:  # a node's process must not import torch
    from dance_flwr.nn.calibration import Calibration


def run_config(run: str, partition_dir: str) -> dict[str, Any]:
    """Return the config that is part of every message of a run."""
    return {keys.RUN: run, keys.PARTITION_DIR: partition_dir}


def personal_config(common: Mapping[str, Any], round_: int) -> dict[str, Any]:
    """Return the config of the message that asks for the losses of mixtures."""
    return {**common, keys.ROUND: round_, keys.PERSONALISE: True}


def reading_settings(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the chosen reading, which join `run_config` once the clients voted."""
    return {key: reading[key] for key in (keys.TEXT_POOLING, keys.EDGE_GATES) if key in reading}


def final_config(common: Mapping[str, Any], round_: int) -> dict[str, Any]:
    """Return the config of the one evaluation that reads the test split."""
    return {**common, keys.ROUND: round_, keys.FINAL: True}


def sealing_config(common: Mapping[str, Any], fitted: Calibration) -> dict[str, Any]:
    """Return the config of the last message: the temperature, and the nodes it was fitted on."""
    return {**common, keys.TEMPERATURE: fitted.temperature, keys.SCORED_NODES: fitted.nodes}


def run_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a config that is in every message of a run."""
    common = (keys.RUN, keys.PARTITION_DIR, keys.TEXT_POOLING, keys.EDGE_GATES)
    return {key: config[key] for key in common if key in config}


def with_clipping_norm(config: Mapping[str, Any], norm: float) -> ConfigRecord:
    """Return a config with the norm that updates are clipped to."""
    return ConfigRecord({**config, keys.CLIPPING_NORM: norm})
