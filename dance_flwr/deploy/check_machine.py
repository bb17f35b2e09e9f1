"""Checks of the machine: device, disk, versions, protocol."""

import platform
import shutil
from pathlib import Path

from dance_flwr.data.federation_file import installed_version
from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.fingerprint import PROTOCOL

# Below it there is a warning only: how much a run needs depends on its settings.
_LEAST_BYTES = 10**9


def check_device(node: Node) -> Finding:
    """Check that the configured device exists; report the one that a client would use."""
    import torch

    from dance_flwr.federation.client.device import device_label, named_device

    device = named_device(node.device)
    if device.type == "cpu":
        why = (
            "as named"
            if node.device == "cpu"
            else f"no CUDA device that torch {torch.__version__} can use"
        )
        return ok(f"CPU, {torch.get_num_threads()} threads; {why}")
    free, total = torch.cuda.mem_get_info(device)
    name = device_label(device)
    if free < _LEAST_BYTES:
        return warning(
            f"1 GB or more free on {name}",
            f"{free / 1e9:.1f} of {total / 1e9:.1f} GB",
            "stop other processes on it, or name another device in --node-config",
        )
    return ok(f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free")


def check_disk(node: Node) -> Finding:
    """Check that there is room for runs and evidence."""
    where = node.data if node.data and node.data.is_dir() else Path()
    free = shutil.disk_usage(where).free
    if free < _LEAST_BYTES:
        return warning(
            f"1 GB or more free at {where.resolve()}",
            f"{free / 1e9:.2f} GB",
            "make room; old runs in the client's folder `runs/` can be deleted",
        )
    return ok(f"{free / 1e9:.0f} GB free at {where.resolve()}")


def check_software(node: Node) -> Finding:
    """Check that the installed versions are the agreed ones; Flower's minor version must match."""
    packages = {name: installed_version(name) for name in ("flwr", "torch", "dance-flwr")}
    listed = ", ".join(
        [
            "Python " + platform.python_version(),
            *(f"{name} {version}" for name, version in packages.items()),
        ]
    )
    agreed = node.agreement
    if agreed is None:
        return ok(listed)
    # The app uses names of Flower that may move in any minor release (`federation/flower.py`).
    if packages["flwr"].split(".")[:2] != agreed.flwr.split(".")[:2]:
        return problem(f"flwr {agreed.flwr}", packages["flwr"], f"pip install flwr=={agreed.flwr}")
    for name, expected in (("flwr", agreed.flwr), ("dance-flwr", agreed.dance_flwr)):
        if packages[name] != expected:
            return warning(f"{name} {expected}", packages[name], "install the agreed version")
    return ok(f"{listed}; as agreed")


def check_protocol(node: Node) -> Finding:
    """Check that the installed release speaks the server's protocol."""
    agreed = node.agreement
    # The server states its number directly, or by the file that was agreed on.
    expected = node.expect or (agreed.protocol if agreed else 0)
    if not expected:
        return unchecked(f"protocol {PROTOCOL}; give --expect NUMBER or --agreed FILE to compare")
    # Why (decision 26): releases of one protocol work together, whatever their version.
    if expected != PROTOCOL:
        release = f"dance-flwr {agreed.dance_flwr}" if agreed and not node.expect else "the release"
        return problem(
            f"the server's protocol {expected}",
            str(PROTOCOL),
            f"install {release} of the server operator, or ask for the latest agreed file",
        )
    return ok(f"protocol {PROTOCOL}, the server's")
