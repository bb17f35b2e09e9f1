"""One network namespace per SuperNode, bridged to the SuperLink, if this user may create them."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
IP = shutil.which("ip") or "ip"  # of the system, not of this environment


@dataclass
class Network:
    """The SuperLink's address, and command prefixes and addresses of the nodes' namespaces."""

    host: str = LOOPBACK
    launchers: dict[str, list[str]] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)


@contextmanager
def namespaces(count: int) -> Iterator[Network]:
    """Create a bridge and `count` namespaces, and remove them; loopback if that is not allowed."""
    number = os.getpid() % 60_000
    name, subnet = f"df{number}", f"10.{200 + number % 50}.{number // 50 % 250}"
    try:
        network = _create(name, subnet, count) if _may(name) else Network()
        yield network if _reaches(network) else Network()
    finally:
        for client in range(count):
            # Deleting a namespace removes both ends of its veth pair.
            _ip("netns", "del", f"{name}-{client}", check=False)
        _ip("link", "del", f"{name}br", check=False)


def _may(name: str) -> bool:
    with suppress(OSError, subprocess.CalledProcessError):
        _ip("netns", "add", f"{name}-0")
        _ip("link", "add", f"{name}br", "type", "bridge")
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
        _ip("link", "del", f"{name}a")
        return True
    return False


def _reaches(network: Network) -> bool:
    """Whether a node reaches the SuperLink's address; a firewall may block it."""
    with socket.create_server((network.host, 0)) as server:
        ask = f"import socket; socket.create_connection({server.getsockname()}, 3)"
        first = network.launchers.get("node-0", [])
        return not subprocess.run(
            [*first, sys.executable, "-c", ask], capture_output=True
        ).returncode


def _create(name: str, subnet: str, count: int) -> Network:
    network = Network(host=f"{subnet}.1")
    _ip("address", "add", f"{subnet}.1/24", "dev", f"{name}br")
    _ip("link", "set", f"{name}br", "up")
    for client in range(count):
        space, here, there = f"{name}-{client}", f"{name}h{client}", f"{name}n{client}"
        if client:
            _ip("netns", "add", space)
        _ip("link", "add", here, "type", "veth", "peer", "name", there)
        _ip("link", "set", there, "netns", space)
        _ip("link", "set", here, "master", f"{name}br", "up")
        _ip("-n", space, "address", "add", f"{subnet}.{client + 2}/24", "dev", there)
        for device in (there, "lo"):
            _ip("-n", space, "link", "set", device, "up")
        network.launchers[f"node-{client}"] = [IP, "netns", "exec", space]
        network.addresses.append(f"{subnet}.{client + 2}")
    return network


def _ip(*arguments: str, check: bool = True) -> None:
    with suppress(*(() if check else (OSError,))):
        subprocess.run([IP, *arguments], check=check, capture_output=True)
