"""A deployment on one machine: the processes of docs/deployment.md, each with its own home.

For tests, for fault measurements, and as a rehearsal before institutions take part. The processes
communicate over loopback, or each in its own network namespace.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dance_flwr.config.text import toml_value
from dance_flwr.deploy.certificates import (
    Certificates,
    make_certificates,
    make_key,
    write_peer_keys,
)
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import (
    NAME,
    SuperLink,
    flower_environment,
    operator_config,
    superlink_options,
    wait_until_healthy,
)
from dance_flwr.disk import write_text
from dance_flwr.federation.wire import keys
from dance_flwr.runs.processes import free_port, tool

HOST = "127.0.0.1"
NodeConfig = Mapping[str, str | int | bool]


class LocalDeployment:
    """A SuperLink with TLS and node authentication, and one SuperNode per client folder.

    Parameters
    ----------
    root : folder for certificates, keys, homes, logs and the SuperLink's database
    folders : folders of the clients, in the order of their numbers
    node_config : additional keys of `--node-config` for every SuperNode
    host : address at which the SuperLink listens; part of its certificate
    launchers : process name (`superlink`, `node-0`, ...) -> prefix of its command, such as `ip
        netns exec NAME`

    Attributes
    ----------
    environment : process name -> additional environment variables
    superlinks : client -> address that its SuperNode connects to, if it is not the SuperLink's
    peer_keys : file with all nodes' public keys, which every node signs and checks with; the value
        of `node-keys` for a run whose server is to check greetings
    """

    def __init__(
        self,
        root: Path,
        folders: Sequence[Path],
        node_config: NodeConfig | None = None,
        *,
        host: str = HOST,
        launchers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        # Absolute, as the working directory of a ClientApp is that of its SuperNode.
        self.root, self.folders = root, [folder.resolve() for folder in folders]
        self._node_config = dict(node_config or {})
        self.port = free_port()
        self.host, self.address = host, f"{host}:{self.port}"
        self._launchers = dict(launchers or {})
        self.environment: dict[str, dict[str, str]] = {}
        self.superlinks: dict[int, str] = {}
        # TLS on loopback as well: Flower authenticates nodes under TLS only (decision 2).
        self.certificates: Certificates = make_certificates(
            root / "certificates", list(dict.fromkeys([host, HOST, "localhost"]))
        )
        self.keys = [make_key(root / f"node-{client}.key") for client in range(len(self.folders))]
        self.peer_keys = root / "peer-keys"
        write_peer_keys(self.peer_keys, self.keys)
        self.nodes: dict[int, ProcessTree] = {}
        self.server: ProcessTree | None = None
        self.link = SuperLink(
            root / "operator", flower_environment(root / "operator"), root / "superlink.log"
        )
        self.link.home.mkdir()
        config = operator_config(self.address, self.certificates.ca)
        write_text(self.link.home / "config.toml", config)

    def start_server(self) -> None:
        """Start the SuperLink, or restart it on its database."""
        # On disk: a SuperLink that is restarted keeps its nodes. Its runs fail; they are resumed
        # (decision 10).
        command = ["flower-superlink", "--database", str(self.root / "state.db")]
        command += superlink_options(self.host, self.port, self.certificates)
        self.server = self.spawn("superlink", command)
        wait_until_healthy(
            self.server, f"https://{self.address}", self.link.log, self.certificates.ca
        )

    def register(self) -> None:
        """Register every node's public key, as the server operator does before a node starts."""
        with ThreadPoolExecutor(2) as pool:
            list(
                pool.map(
                    lambda key: self.link.flwr("supernode", "register", str(key), NAME), self.keys
                )
            )

    def node_command(
        self,
        client: int,
        *,
        key: Path | None = None,
        root_certificates: Path | None = None,
        superlink: str = "",
    ) -> list[str]:
        """Return the command of a client's SuperNode.

        Parameters
        ----------
        key, root_certificates, superlink : replace the client's key, the authority's certificate
            and the SuperLink's address
        """
        settings: dict[str, str | int | bool] = {
            keys.PARTITION_ID: client,
            keys.NUM_PARTITIONS: len(self.folders),
        }
        signing = str(self.keys[client].with_suffix(""))
        # Every node has a key already, so that all of them sign and check (decision 8).
        settings |= {keys.SIGNING_KEY: signing, keys.PEER_KEYS: str(self.peer_keys)}
        settings |= {keys.DATA_PATH: str(self.folders[client]), **self._node_config}
        pairs = " ".join(f"{name}={toml_value(value)}" for name, value in settings.items())
        command = [
            "dance-flwr",
            "supernode",
            "--superlink",
            superlink or self.superlinks.get(client, self.address),
        ]
        command += [
            "--root-certificates",
            str(root_certificates or self.certificates.ca),
            "--node-config",
            pairs,
        ]
        return [
            *command,
            "--auth-supernode-private-key",
            str((key or self.keys[client]).with_suffix("")),
        ]

    def start_node(self, client: int) -> None:
        """Start a client's SuperNode."""
        self.nodes[client] = self.spawn(f"node-{client}", self.node_command(client))

    def kill_node(self, client: int) -> None:
        """End a client's SuperNode and its ClientApp with SIGKILL."""
        # As at a power failure: no process can close its connections.
        stop(self.nodes.pop(client), ask=False)

    def kill_server(self) -> None:
        """End the SuperLink and its ServerApp with SIGKILL."""
        if self.server:
            stop(self.server, ask=False)
            self.server = None

    def spawn(self, name: str, command: Sequence[str]) -> ProcessTree:
        """Start a command in the home `name`; its output is appended to `<name>.log`."""
        home = self.root / name
        # A home for each, as on machines of their own.
        home.mkdir(exist_ok=True)
        environment = flower_environment(home) | self.environment.get(name, {})
        program = [*self._launchers.get(name, ()), str(tool(command[0])), *command[1:]]
        return ProcessTree(program, environment, home, self.root / f"{name}.log")

    def close(self) -> None:
        """Stop all processes."""
        processes = [*self.nodes.values(), *([self.server] if self.server else [])]
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            list(pool.map(stop, processes))
        self.nodes, self.server = {}, None


@contextmanager
def local_deployment(
    root: Path, folders: Sequence[Path], node_config: NodeConfig | None = None, **network: Any
) -> Iterator[LocalDeployment]:
    """Start SuperLink and SuperNodes, and stop them on exit; parameters as `LocalDeployment`."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    deployment = LocalDeployment(root.resolve(), folders, node_config, **network)
    try:
        deployment.start_server()
        # Before the nodes start: an unknown key is refused.
        deployment.register()
        for client in range(len(folders)):
            deployment.start_node(client)
        yield deployment
    finally:
        deployment.close()
