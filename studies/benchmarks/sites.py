"""A federation of three sites in nine commands, on this machine, as a transcript with seconds.

    python studies/benchmarks/sites.py FOLDER [--data pydocs] [--kill SITE] [KEY=VALUE ...]

The nodes of a graph are dealt to three sites, each of which joins with its part as a graph of its
own: TLS, node keys, masks and peer keys, over loopback. A command runs in the working folder of its
machine, and files are handed over by copying them. KEY=VALUE are keys of the run. With `--kill`, a
site's node is killed after the first round, and what each side says is printed.
"""

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dance_flwr.config.paths import HISTORY
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import flower_environment
from dance_flwr.runs.processes import free_port

SITES = ("north", "south", "west")
_PATIENCE_SECONDS = 600.0


class Machines:
    """A server and three sites, each with its folder below `root`.

    Parameters
    ----------
    log : receives the lines of the transcript
    """

    def __init__(self, root: Path, log: Callable[[str], None]) -> None:
        self.root, self.log = root.resolve(), log
        self.running: dict[str, ProcessTree] = {}
        self.began = time.monotonic()

    def call(self, machine: str, *words: str, code: int = 0) -> list[str]:
        """Run `dance-flwr` with these words on a machine to its end; return its output."""
        process = self._start(machine, words, log := self.root / f"{machine}.log")
        ended = process.wait(_PATIENCE_SECONDS)
        stop(process)
        lines = read(log)
        for line in lines:
            self.log(f"    {line}")
        assert ended == code, f"{' '.join(words)}: expected exit code {code}, found {ended}"
        return lines

    def start(self, machine: str, line: str, *words: str) -> None:
        """Start `dance-flwr` in the foreground of a machine, until it has said a line."""
        log = self.root / f"{machine}-foreground.log"
        self.running[machine] = process = self._start(machine, words, log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any(line in each for each in read(log)):
            assert process.poll() is None and time.monotonic() < deadline, read(log)
            time.sleep(0.2)
        self.log(f"    ... {line}")

    def close(self) -> None:
        """Stop what runs in the foreground, the nodes first."""
        for process in reversed(self.running.values()):
            stop(process)
        self.running.clear()

    def background(self, machine: str, *words: str) -> ProcessTree:
        """Start `dance-flwr` on a machine without waiting for anything."""
        return self._start(machine, words, self.root / f"{machine}.log")

    def _start(self, machine: str, words: Sequence[str], log: Path) -> ProcessTree:
        self.log(f"{time.monotonic() - self.began:5.0f} s  {machine}$ dance-flwr {' '.join(words)}")
        folder = self.root / machine
        folder.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        # Not as in a home: what a command stores is in its own folders.
        environment = flower_environment(folder / "home") | {"HOME": str(folder)}
        for name in ("FLWR_HOME", "DANCE_FLWR_HOME"):
            environment.pop(name, None)
        return ProcessTree(["dance-flwr", *words], environment, folder, log)


def read(log: Path) -> list[str]:
    """Return the lines of a terminal so far."""
    return log.read_text(errors="replace").splitlines()


def deal(graph: TextGraph, root: Path, seed: int = 0) -> None:
    """Write an equal share of the nodes, and the edges among them, as a graph of each site."""
    parts = np.array_split(np.random.default_rng(seed).permutation(graph.num_nodes), len(SITES))
    for site, part in zip(SITES, parts, strict=True):
        write_folder(graph.subgraph(np.sort(part), site), root / site / "graph")


def found(machines: Machines, graph: TextGraph, settings: Sequence[str] = ()) -> None:
    """Walk from nothing to three nodes that are online.

    Parameters
    ----------
    settings : keys of every run, KEY=VALUE
    """
    root = machines.root
    deal(graph, root)
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


def killed(machines: Machines, site: str) -> None:
    """Kill a site's node after the first round of a run, and print what each side says."""
    process = machines.background("server", "deploy", "run", "--name", "killed")
    terminal = machines.root / "server.log"
    history = machines.root / "server/hospitals/runs/killed" / HISTORY
    while not (history.is_file() and history.read_text()):
        assert process.poll() is None, read(terminal)
        time.sleep(0.2)
    stop(machines.running.pop(site), ask=False)
    machines.log(f"{time.monotonic() - machines.began:5.0f} s  {site}: killed")
    machines.log(f"    exit code {process.wait(_PATIENCE_SECONDS)}")
    stop(process)
    logs = [machines.root / f"{other}-foreground.log" for other in SITES if other != site]
    for log in (terminal, *logs):
        for line in read(log)[-3:]:
            machines.log(f"    {log.stem}: {line}")
    machines.start(site, "SuperNode ID", "site", "start")
    machines.call("server", "deploy", "run", "--resume", "hospitals/runs/killed")


def main() -> None:
    """Print the transcript."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("settings", nargs="*", default=["rounds=5", "method=dance"])
    parser.add_argument("--data", default="pydocs")
    parser.add_argument("--kill", choices=SITES)
    options = parser.parse_intermixed_args()
    machines = Machines(options.folder, lambda line: print(line, flush=True))
    try:
        found(machines, load_graph(options.data), options.settings)
        if options.kill:
            killed(machines, options.kill)
            return
        machines.call("server", "deploy", "run")
        machines.call("north", "site", "results")
        for file in sorted((machines.root / "north/north/results").rglob("*.*")):
            print(f"    {file.relative_to(machines.root)}")
    finally:
        machines.close()


if __name__ == "__main__":
    main()
