"""A network of its own for every SuperNode, joined to the SuperLink by a bridge, where this user
may make one.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass
class Network:
    """Where the SuperLink listens, the words that start a process in each node's namespace, and
    each node's address.
    """

    host: str = LOOPBACK
    launchers: dict[str, list[str]] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)


@contextmanager
def namespaces(count: int) -> Iterator[Network]:
    """Make a bridge and `count` namespaces with a wire to it, and remove them; loopback where that
    is not allowed.
    """
    number = os.getpid() % 60_000
    name, subnet = f"df{number}", f"10.{200 + number % 50}.{number // 50 % 250}"
    try:
        network = _made(name, subnet, count) if _may(name) else Network()
        yield network if _reaches(network) else Network()
    finally:
        for client in range(count):
            _ip(
                "netns", "del", f"{name}-{client}", check=False
            )  # its end of the wire goes, and so the other
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
    """Whether a node gets through to where the SuperLink will listen; a firewall may be in between."""
    with socket.create_server((network.host, 0)) as server:
        ask = f"import socket; socket.create_connection({server.getsockname()}, 3)"
        first = network.launchers.get("node-0", [])
        return not subprocess.run(
            [*first, sys.executable, "-c", ask], capture_output=True
        ).returncode


def _made(name: str, subnet: str, count: int) -> Network:
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
        network.launchers[f"node-{client}"] = ["ip", "netns", "exec", space]
        network.addresses.append(f"{subnet}.{client + 2}")
    return network


def _ip(*arguments: str, check: bool = True) -> None:
    with suppress(*(() if check else (OSError,))):
        subprocess.run(["ip", *arguments], check=check, capture_output=True)
