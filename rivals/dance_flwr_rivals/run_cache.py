"""Cached cores, condensed and refined graphs in a client's folder of a run."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import STATE
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz

Arrays = dict[str, Tensor]
_KEY = "cache_key"


def cache_key(data: ClientData, config: RunConfig) -> dict[str, Any]:
    """Return the facts on which every stored array depends; a method adds its settings."""
    # The public code of FedGVD keys its files without split and number of clients, and reuses those
    # of another experiment silently.
    return {
        "seed": config.seed,
        "inductive": data.inductive,
        "partition": data.card.partition_sha256,
    }


def load_or_compute(
    data: ClientData,
    run: str,
    key: Mapping[str, Any],
    compute: Callable[[], Arrays],
    name: str = STATE,
) -> Arrays:
    """Return the arrays in file `name` of this run, or compute and write them atomically.

    A client that joins in a later round, or has lost its folder, computes them then: `compute`
    must not depend on the round, unless the key holds the round.
    """
    path = run_folder(data.folder, run) / name
    # Why (decision 26): the file is part of the state of one run, and PROTOCOL says which release
    # may resume that run: the code is no part of the key.
    text = json.dumps(dict(key), sort_keys=True)
    digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
    stored = read_npz(path) or {}
    if _KEY in stored and np.array_equal(stored.pop(_KEY), digest):
        return {part: torch.as_tensor(array, device=data.device) for part, array in stored.items()}
    arrays = compute()
    write_npz(path, {part: array.cpu().numpy() for part, array in arrays.items()} | {_KEY: digest})
    return arrays
