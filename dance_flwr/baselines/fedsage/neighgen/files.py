"""Files of NeighGen in a client's folder of a run: its state between exchanges, and its result."""

import errno
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dance_flwr.disk import atomic_file

GENERATOR = "generator.safetensors"  # state between two steps of the exchange
GENERATED = "generated.safetensors"  # generated neighbours, all that rounds need


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to `path` atomically.

    Raises
    ------
    OSError : the disk is full or not writable
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file.name)
        except SafetensorError as error:
            number = errno.ENOSPC if "No space" in str(error) else errno.EIO
            raise OSError(number, str(error), str(path)) from None


def read(path: Path, device: torch.device) -> dict[str, Tensor] | None:
    """Return the tensors at `path`, or None where the file is missing or cannot be read."""
    if not path.is_file():
        return None
    try:
        return load_file(path, device=str(device))
    except (SafetensorError, OSError):
        return None
