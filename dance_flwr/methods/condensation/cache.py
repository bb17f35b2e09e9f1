"""What a condensation baseline keeps in a client's folder of a run: made once, read in every later
round.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dance_flwr.config.paths import STATE
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site, run_folder
from dance_flwr.disk import write_npz
from dance_flwr.fingerprint import code_fingerprint

Arrays = dict[str, Tensor]
_KEY = "made_from"


def decided_by(site: Site, config: RunConfig) -> dict[str, Any]:
    """Return what decides every core and condensed graph: ratio, seed, partition, and what training
    may see of it.
    """
    return {
        "ratio": config.condensation_ratio,
        "seed": config.seed,
        "inductive": site.inductive,
        "partition": site.card.partition_sha256,
    }


def kept(
    client_folder: Path,
    run: str,
    made_from: Mapping[str, Any],
    device: torch.device,
    make: Callable[[], Arrays],
) -> Arrays:
    """Return the arrays in `state.npz` of this run, or make and write them; a killed write leaves
    nothing.

    A client that is first asked in a later round, or lost its folder, makes them then: `make` may
    not depend on the round.

    Parameters
    ----------
    made_from : what decides the arrays; they are made anew where the file was made from something
        else, or by other code
    """
    path = run_folder(client_folder, run) / STATE
    text = json.dumps({**made_from, "code": code_fingerprint()}, sort_keys=True)
    key = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
    if path.is_file():
        with np.load(path) as file:
            if _KEY in file and np.array_equal(file[_KEY], key):
                return {
                    name: torch.as_tensor(file[name], device=device)
                    for name in file.files
                    if name != _KEY
                }
    arrays = make()
    write_npz(path, {name: tensor.cpu().numpy() for name, tensor in arrays.items()} | {_KEY: key})
    return arrays
