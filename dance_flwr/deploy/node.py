"""What the operator of a node says about it: the input of every point of the check."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from dance_flwr.deploy.agreement import Agreement, read_agreement
from dance_flwr.deploy.network import Probe, probe
from dance_flwr.errors import UserError


def _present() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Node:
    """A node before it joins; what is left out is not checked.

    Attributes
    ----------
    superlink : host:port of the SuperLink
    root_certificates : PEM file of the authority that signed the SuperLink's certificate; None =
        the system's
    key : the SuperNode's private key
    data : the client's folder
    agreed : the agreed federation file
    expect : fingerprint of the server's code; "" = that of the agreed file
    device : what the node config is going to name as its device
    connection : name of the SuperLink in the server operator's Flower configuration, for the line
        to copy
    now : the clock of this machine
    timeout : seconds to wait for the network
    """

    superlink: str = ""
    root_certificates: Path | None = None
    key: Path | None = None
    data: Path | None = None
    agreed: Path | None = None
    expect: str = ""
    device: str = "auto"
    connection: str = "SUPERLINK"
    now: Callable[[], datetime] = _present
    timeout: float = 10.0

    @cached_property
    def probe(self) -> Probe:
        """What the SuperLink's port answered, asked once."""
        return probe(self.superlink, self.root_certificates, self.now, self.timeout)

    @cached_property
    def agreement(self) -> Agreement | None:
        """The agreed federation file's content; None without a file that can be read."""
        try:
            return read_agreement(self.agreed) if self.agreed else None
        except UserError:  # `check_agreed` says so, once
            return None
