"""Points of the check that concern the machine: device, disk, versions, code."""

import platform
import shutil
from pathlib import Path

from dance_flwr.deploy.agreement import installed
from dance_flwr.deploy.finding import Point, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.fingerprint import code_fingerprint

_LEAST_BYTES = 10**9


def check_device(node: Node) -> Point:
    """Which device a client would compute on, and that the named one is there."""
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
            "end what else uses it, or name another device in --node-config",
        )
    return ok(f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free")


def check_disk(node: Node) -> Point:
    """There is room for runs and evidence."""
    where = node.data if node.data and node.data.is_dir() else Path()
    free = shutil.disk_usage(where).free
    if free < _LEAST_BYTES:
        return warning(
            f"1 GB or more free at {where.resolve()}",
            f"{free / 1e9:.2f} GB",
            "make room; old runs in the client's folder `runs/` can go",
        )
    return ok(f"{free / 1e9:.0f} GB free at {where.resolve()}")


def check_software(node: Node) -> Point:
    """Which versions are installed, and whether Flower's fits the agreed one."""
    packages = {name: installed(name) for name in ("flwr", "torch", "dance-flwr")}
    listed = ", ".join(
        [
            "Python " + platform.python_version(),
            *(f"{name} {is_}" for name, is_ in packages.items()),
        ]
    )
    agreed = node.agreement
    if agreed is None:
        return ok(listed)
    if packages["flwr"].split(".")[:2] != agreed.flwr.split(".")[:2]:
        return problem(f"flwr {agreed.flwr}", packages["flwr"], f"pip install flwr=={agreed.flwr}")
    for name, wanted in (("flwr", agreed.flwr), ("dance-flwr", agreed.dance_flwr)):
        if packages[name] != wanted:
            return warning(f"{name} {wanted}", packages[name], "install the agreed version")
    return ok(f"{listed}; as agreed")


def check_code(node: Node) -> Point:
    """The installed code is the server's."""
    agreed = node.agreement
    wanted = node.expect or (agreed.code if agreed else "")
    found = code_fingerprint()
    if not wanted:
        return unchecked(
            f"fingerprint {found}; give --expect FINGERPRINT or --agreed FILE to compare"
        )
    if found != wanted:
        version = f" (dance-flwr {agreed.dance_flwr})" if agreed and not node.expect else ""
        return problem(
            f"the server's code {wanted}{version}",
            found,
            "install what the server operator installed, unchanged; or ask for the file agreed last",
        )
    return ok(f"fingerprint {found}, the server's")
