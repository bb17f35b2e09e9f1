"""What a client keeps of its generator in its folder of a run: its state between exchanges, and
what it generated.
"""

import errno
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dance_flwr.disk import atomic_file

GENERATOR, MENDED = "generator.safetensors", "mended.safetensors"


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to `path`, whole or not at all.

    Raises
    ------
    OSError : the disk takes no more
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file.name)
        except SafetensorError as error:
            number = errno.ENOSPC if "No space" in str(error) else errno.EIO
            raise OSError(number, str(error), str(path)) from None


def read(path: Path, device: torch.device) -> dict[str, Tensor] | None:
    """Return the tensors at `path`; None where there is no file, or one that cannot be read."""
    if not path.is_file():
        return None
    try:
        return load_file(path, device=str(device))
    except (SafetensorError, OSError):
        return None
