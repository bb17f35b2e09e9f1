"""The device of a client: which one, what share of its memory, and what it is called."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError

# Keys of --node-config.
DEVICE, MEMORY_RATIO = "device", "gpu-memory-ratio"
AUTO = "auto"


def pick_device(config: RunConfig, node_config: Mapping[str, Any] | None = None) -> torch.device:
    """Return the device that the node names, else what `auto` finds; the CPU where the run asks for
    it.

    Raises
    ------
    UserError : the node has no such device
    """
    if config.device == "cpu":
        return torch.device("cpu")
    return named_device(str((node_config or {}).get(DEVICE, AUTO)))


def named_device(name: str) -> torch.device:
    """Return a device by name: `auto`, `cpu`, `cuda` (the first) or `cuda:N`.

    `auto` is the first visible CUDA device, else the CPU: Ray hides the devices that a client was
    not assigned.

    Raises
    ------
    UserError : there is no such device on this machine
    """
    cuda = (
        [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    if name == AUTO:
        return torch.device(cuda[0] if cuda else "cpu")
    wanted = "cuda:0" if name == "cuda" else name
    if wanted not in ("cpu", *cuda):
        found = ", ".join(["cpu", *cuda])
        raise UserError(
            f"{DEVICE}: expected {AUTO} or a device of this node ({found}), found {name!r}; name one of these in "
            "--node-config, or leave it out"
        )
    return torch.device(wanted)


def memory_ratio(node_config: Mapping[str, Any]) -> float | None:
    """Return the share of a CUDA device's memory that this process may use: the node's, else Ray's;
    None = all.

    Raises
    ------
    UserError : the node names no share
    """
    if MEMORY_RATIO not in node_config:
        return _share_of_ray()
    ratio = node_config[MEMORY_RATIO]
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise UserError(
            f"{MEMORY_RATIO}: expected a number > 0 and <= 1, found {ratio!r}; correct it in --node-config, or leave "
            "it out"
        )
    return float(ratio)


@contextmanager
def claim(device: torch.device, ratio: float | None) -> Iterator[None]:
    """Make a CUDA device the current one of this process, within a share of its memory (None = all
    of it).

    Raises
    ------
    UserError : the block needs more
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if ratio is not None:
            torch.cuda.set_per_process_memory_fraction(ratio, device)
    try:
        yield
    except torch.OutOfMemoryError:
        raise UserError(
            f"{device_label(device)}: expected this client to fit into {ratio or 1:.0%} of its memory, found that it "
            f"does not; raise {MEMORY_RATIO} or name another {DEVICE} in --node-config, in simulation raise "
            "client-resources-num-gpus"
        ) from None


def device_label(device: torch.device) -> str:
    """Return a device with the name of its model, "cuda:0 (NVIDIA H200)"; a CPU has none."""
    return (
        f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    )


def _share_of_ray() -> float | None:
    """Return the GPU share of the actor that this process is: `client-resources-num-gpus`, to four
    digits.
    """
    ray = sys.modules.get("ray")
    if (
        ray is None
        or not ray.is_initialized()
        or not (actor := ray.get_runtime_context()).get_actor_id()
    ):
        return None
    share = actor.get_assigned_resources().get("GPU")
    return min(float(share), 1.0) if share else None
