"""A deployment on one machine: the processes of docs/deployment.md, each with its own home.

The processes communicate over loopback, or each in its own network namespace.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dance_flwr.config.text import toml_value
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import (
    NAME,
    SuperLink,
    flower_environment,
    operator_config,
    superlink_options,
    wait_until_healthy,
)
from dance_flwr.federation.wire import keys
from dance_flwr.runs.processes import tool
from support.processes import free_port

HOST = "127.0.0.1"


class LocalDeployment:
    """A SuperLink with TLS and node authentication, and one SuperNode per client folder.

    Parameters
    ----------
    root : new folder for certificates, keys, homes, logs and the SuperLink's database
    folders : folders of the clients, in the order of their numbers
    node_config : additional keys of `--node-config` for every SuperNode
    host : address at which the SuperLink listens; part of its certificate
    launchers : process name (`superlink`, `node-0`, ...) -> prefix of its command, such as `ip
        netns exec NAME`

    Attributes
    ----------
    peer_keys : file with all nodes' public keys, which every node signs and checks with; the value
        of `node-keys` for a run whose server is to check greetings
    """

    def __init__(self, root, folders, node_config, *, host=HOST, launchers=None):
        # Absolute, as the working directory of a ClientApp is that of its SuperNode.
        self.root, self.folders = root.resolve(), [folder.resolve() for folder in folders]
        self.root.mkdir(parents=True)
        self._node_config, self._launchers = node_config, launchers or {}
        self._host, self._port = host, free_port()
        self._address = f"{host}:{self._port}"
        # TLS on loopback as well: Flower authenticates nodes under TLS only (decision 2).
        hosts = list(dict.fromkeys([host, HOST, "localhost"]))
        self._certificates = make_certificates(self.root / "certificates", hosts)
        self._keys = [make_key(self.root / f"node-{k}.key") for k in range(len(folders))]
        self.peer_keys = self.root / "peer-keys"
        lines = [f"{k} {key.read_text()}" for k, key in enumerate(self._keys)]
        self.peer_keys.write_text("".join(lines))
        home = self.root / "operator"
        self.link = SuperLink(home, flower_environment(home), self.root / "superlink.log")
        home.mkdir()
        config = operator_config(self._address, self._certificates.ca)
        (home / "config.toml").write_text(config)
        self.server = None
        self.nodes = []

    def start(self):
        """Start the SuperLink, register the key of every node, and start the SuperNodes."""
        command = ["flower-superlink", "--database", str(self.root / "state.db")]
        command += superlink_options(self._host, self._port, self._certificates)
        self.server = self._spawn("superlink", command)
        address, authority = f"https://{self._address}", self._certificates.ca
        wait_until_healthy(self.server, address, self.link.log, authority)
        # Before the nodes start: an unknown key is refused.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._register, self._keys))
        for client in range(len(self.folders)):
            self.nodes.append(self._spawn(f"node-{client}", self._node_command(client)))

    def _register(self, key):
        self.link.flwr("supernode", "register", str(key), NAME)

    def _node_command(self, client):
        key = str(self._keys[client].with_suffix(""))
        settings = {keys.PARTITION_ID: client, keys.NUM_PARTITIONS: len(self.folders)}
        # Every node has a key already, so that all of them sign and check (decision 8).
        settings |= {keys.SIGNING_KEY: key, keys.PEER_KEYS: str(self.peer_keys)}
        settings |= {keys.DATA_PATH: str(self.folders[client]), **self._node_config}
        pairs = " ".join(f"{name}={toml_value(value)}" for name, value in settings.items())
        options = {
            "--superlink": self._address,
            "--root-certificates": str(self._certificates.ca),
            "--node-config": pairs,
            "--auth-supernode-private-key": key,
        }
        return ["dance-flwr", "supernode", *(word for pair in options.items() for word in pair)]

    def _spawn(self, name, command):
        """Start a command in the home `name`; its output is appended to `<name>.log`."""
        home = self.root / name
        # A home for each, as on machines of their own.
        home.mkdir()
        program = [*self._launchers.get(name, ()), str(tool(command[0])), *command[1:]]
        return ProcessTree(program, flower_environment(home), home, self.root / f"{name}.log")

    def close(self):
        """Stop all processes."""
        processes = [*self.nodes, *([self.server] if self.server else [])]
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            list(pool.map(stop, processes))


@contextmanager
def local_deployment(root, folders, node_config, **network):
    """Start SuperLink and SuperNodes, and stop them on exit; parameters as `LocalDeployment`."""
    deployment = LocalDeployment(root, folders, node_config, **network)
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.close()
