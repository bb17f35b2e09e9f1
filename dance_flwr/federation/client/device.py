"""Choose the device of a client and its share of the memory."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.federation.wire.keys import DEVICE, MEMORY_RATIO

AUTO = "auto"


def pick_device(config: RunConfig, node_config: Mapping[str, Any] | None = None) -> torch.device:
    """Return the CPU if the run asks for it, else the device that the node config names."""
    if config.device == "cpu":
        return torch.device("cpu")
    return named_device(str((node_config or {}).get(DEVICE, AUTO)))


def named_device(name: str) -> torch.device:
    """Return a device by name: `auto`, `cpu`, `cuda` (the first) or `cuda:N`.

    `auto` is the first visible CUDA device, else the CPU. Ray hides the devices that are not
    assigned to a client.
    """
    cuda = (
        [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        if torch.cuda.is_available()
        else []
    )
    if name == AUTO:
        return torch.device(cuda[0] if cuda else "cpu")
    device = "cuda:0" if name == "cuda" else name
    if device not in ("cpu", *cuda):
        names = ", ".join(["cpu", *cuda])
        raise UserError(
            f"{DEVICE}: expected {AUTO} or a device of this node ({names}), found {name!r}; name "
            "one of these in --node-config, or leave it out"
        )
    return torch.device(device)


def memory_ratio(node_config: Mapping[str, Any]) -> float | None:
    """Return the share of a CUDA device's memory for this process: the node's, else Ray's.

    None stands for all of it.
    """
    if MEMORY_RATIO not in node_config:
        return _share_of_ray()
    ratio = node_config[MEMORY_RATIO]
    # A bool is a number for Python.
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise UserError(
            f"{MEMORY_RATIO}: expected a number > 0 and <= 1, found {ratio!r}; correct it in "
            "--node-config, or leave it out"
        )
    return float(ratio)


@contextmanager
def claim(device: torch.device, ratio: float | None) -> Iterator[None]:
    """Make a CUDA device the current one of this process, limited to a share of its memory."""
    if device.type == "cuda":
        # Why (decision 31): repeated runs give the same bits. Unread memory need not be filled.
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        # The current device is the one that `seeding.seeded` seeds.
        torch.cuda.set_device(device)
        if ratio is not None:
            torch.cuda.set_per_process_memory_fraction(ratio, device)
    try:
        yield
    except torch.OutOfMemoryError:
        # One line with the remedy instead of torch's list of allocations.
        raise UserError(
            f"{device_label(device)}: expected this client to fit into {100 * (ratio or 1):.3g} % "
            f"of its memory, found that it does not; raise {MEMORY_RATIO} or name another {DEVICE} "
            "in --node-config, in simulation raise client-resources-num-gpus"
        ) from None


def device_label(device: torch.device) -> str:
    """Return a device with the name of its model, as "cuda:0 (NVIDIA H200)"; a CPU has none."""
    return (
        f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    )


def _share_of_ray() -> float | None:
    """Return the GPU share of this process's Ray actor, `client-resources-num-gpus`."""
    # Already imported if Ray started this process; a SuperNode does without it.
    ray = sys.modules.get("ray")
    if (
        ray is None
        or not ray.is_initialized()
        or not (actor := ray.get_runtime_context()).get_actor_id()
    ):
        return None
    share = actor.get_assigned_resources().get("GPU")
    return min(float(share), 1.0) if share else None
