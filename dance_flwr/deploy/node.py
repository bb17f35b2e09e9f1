"""`Node`: what the operator specifies about a node, the input of every check."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from dance_flwr.data.federation_file import Agreement, read_agreement
from dance_flwr.deploy.network import Probe, probe
from dance_flwr.errors import UserError


def _present() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Node:
    """A node before it joins; what is not specified is not checked.

    Attributes
    ----------
    superlink : host:port of the SuperLink
    root_certificates : PEM file of the authority that signed the SuperLink's certificate; None for
        the system's authorities
    key : the SuperNode's private key
    data : the client's folder
    agreed : the agreed federation file
    expect : the server's protocol; 0 for that of the agreed file
    device : device that the node config will name
    node_config : what the SuperNode gets as `--node-config`, a TOML file or `KEY=VALUE ...`
    now : this machine's clock
    timeout : seconds to wait for the network
    """

    superlink: str = ""
    root_certificates: Path | None = None
    key: Path | None = None
    data: Path | None = None
    agreed: Path | None = None
    expect: int = 0
    device: str = "auto"
    node_config: str = ""
    now: Callable[[], datetime] = _present
    timeout: float = 10.0

    @cached_property
    def probe(self) -> Probe:
        """Result of probing the SuperLink's port, once."""
        # Once: several checks read it, and each would wait for a SuperLink that is slow.
        return probe(self.superlink, self.root_certificates, self.now, self.timeout)

    @cached_property
    def agreement(self) -> Agreement | None:
        """Content of the agreed federation file; None without a readable file."""
        try:
            # Read by several checks, of which one reports that it is damaged.
            return read_agreement(self.agreed) if self.agreed else None
        except UserError:  # reported by `check_agreed`
            return None
