"""A federation of three sites in nine commands, each run in the folder of its machine."""

import shutil
import time

import numpy as np

from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import flower_environment
from support.processes import free_port

SITES = ("north", "south", "west")
_PATIENCE_SECONDS = 600.0


class Machines:
    """A server and three sites, each with its folder below `root`.

    Parameters
    ----------
    log : receives the lines of the transcript
    """

    def __init__(self, root, log):
        self.root, self.log = root.resolve(), log
        self._running = {}
        self._began = time.monotonic()

    def call(self, machine, *words):
        """Run `dance-flwr` with these words on a machine to its end; return its output."""
        process = self._start(machine, words, log := self.root / f"{machine}.log")
        ended = process.wait(_PATIENCE_SECONDS)
        stop(process)
        for line in _read(log):
            self.log(f"    {line}")
        assert ended == 0, f"{' '.join(words)}: expected exit code 0, found {ended}"
        return _read(log)

    def start(self, machine, line, *words):
        """Start `dance-flwr` in the foreground of a machine, until it has said a line."""
        log = self.root / f"{machine}-foreground.log"
        self._running[machine] = process = self._start(machine, words, log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any(line in each for each in _read(log)):
            assert process.poll() is None and time.monotonic() < deadline, _read(log)
            time.sleep(0.2)
        self.log(f"    ... {line}")

    def close(self):
        """Stop what runs in the foreground, the nodes first."""
        for process in reversed(self._running.values()):
            stop(process)

    def _start(self, machine, words, log):
        seconds = time.monotonic() - self._began
        self.log(f"{seconds:5.0f} s  {machine}$ dance-flwr {' '.join(words)}")
        folder = self.root / machine
        folder.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        # Not as in a home: what a command stores is in its own folders.
        environment = flower_environment(folder / "home") | {"HOME": str(folder)}
        for name in ("FLWR_HOME", "DANCE_FLWR_HOME"):
            environment.pop(name, None)
        return ProcessTree(["dance-flwr", *words], environment, folder, log)


def _read(log):
    return log.read_text(errors="replace").splitlines()


def found(machines, graph, settings):
    """Walk from nothing to three nodes that are online.

    Each site has an equal share of the nodes, and the edges among them.

    Parameters
    ----------
    settings : keys of every run, KEY=VALUE
    """
    root = machines.root
    parts = np.array_split(np.random.default_rng(0).permutation(graph.num_nodes), len(SITES))
    for site, part in zip(SITES, parts, strict=True):
        write_folder(graph.subgraph(np.sort(part), site), root / site / "graph")
    ports = ["--port", str(free_port()), "--superlink-port", str(free_port())]
    pairs = [word for pair in settings for word in ("--set", pair)]
    classes = ",".join(graph.class_names)
    init = ["--host", "127.0.0.1", "--classes", classes, "--sites", ",".join(SITES)]
    machines.call("server", "deploy", "init", "hospitals", *init, *ports, *pairs)
    machines.start("server", "serving", "deploy", "serve")
    for site in SITES:
        shutil.copy(root / f"server/hospitals/invitations/{site}.toml", root / site)
        machines.call(site, "site", "join", f"{site}.toml", "graph")
    for site in SITES:
        shutil.copy(root / site / site / f"{site}.pub", root / "server")
        machines.call("server", "deploy", "admit", f"{site}.pub")
    for site in SITES:
        shutil.copy(root / "server/hospitals/peer-keys", root / site)
        words = ("site", "start", "--peer-keys", "peer-keys")
        machines.start(site, "SuperNode ID", *words)
