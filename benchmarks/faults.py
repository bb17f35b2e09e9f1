"""Faults of a deployment: detected after how long, rounds lost, data lost, accuracy against the undisturbed run.

    python benchmarks/faults.py --data path/to/graph [--clients 3] [--rounds 6] [--faults kill-node ...]

Each fault strikes a real deployment on loopback (`dance_flwr.deploy.local`: TLS, node authentication, a process per
SuperNode) in the middle of a run. "Detected" is the time from the fault to the line in the server's log or error that
names it; "rounds lost" are those of the finished run that had fewer than all clients; "data lost" compares every file
of the client folders, runs aside, before and after.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dance_flwr.config import RunConfig, parse
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.local import HOST, LocalDeployment, local_deployment
from dance_flwr.errors import UserError
from dance_flwr.prepare import prepare
from dance_flwr.results import HISTORY, RESULT
from dance_flwr.runtime import follow
from dance_flwr.superlink import stop

STRIKE_AFTER_ROUND = 2


@dataclass
class Scene:
    """A running deployment with a run in it, and what was seen."""

    deployment: LocalDeployment
    config: RunConfig
    out: Path
    run_id: str = ""
    detected: float = float("nan")

    def rounds(self) -> int:
        """Return how many rounds are over."""
        file = self.out / HISTORY
        return len(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else 0

    def wait(self, done: Callable[[], bool], seconds: float = 300.0) -> float:
        """Wait until `done`; return how long it took, infinite when it did not happen."""
        begin = time.monotonic()
        while not done():
            if time.monotonic() - begin > seconds:
                return float("inf")
            time.sleep(0.2)
        return time.monotonic() - begin

    def submit(self, config: RunConfig) -> None:
        """Start the run, or go on with it."""
        self.run_id = self.deployment.link.submit(config)

    def end(self) -> dict[str, Any]:
        """Wait for the end of the run; return its result."""
        follow(self.deployment.link, self.run_id, self.out, lambda row: None)
        return json.loads((self.out / RESULT).read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def log_size(self) -> int:
        """Return the bytes of the server's log so far."""
        return self.deployment.link.log.stat().st_size

    def logged(self, words: str, after: int) -> bool:
        """Whether the server's log says this after so many bytes."""
        return words in self.deployment.link.log.read_bytes()[after:].decode(errors="replace")


def kill_node(scene: Scene) -> None:
    """SIGKILL of client 0's SuperNode and ClientApp; it is started again two rounds later."""
    seen, place = scene.rounds(), scene.log_size()
    scene.deployment.kill_node(0)
    scene.detected = scene.wait(lambda: scene.logged("client 0", place) or scene.rounds() > seen)
    scene.wait(lambda: scene.rounds() >= min(seen + 2, scene.config.rounds - 1))
    scene.deployment.start_node(0)


def restart_node(scene: Scene) -> None:
    """SIGKILL of client 0's SuperNode, started again at once."""
    scene.deployment.kill_node(0)
    scene.detected = 0.0
    scene.deployment.start_node(0)


def kill_superlink(scene: Scene) -> None:
    """SIGKILL of the SuperLink with its ServerApp; started again on its database, and the run resumed."""
    scene.deployment.kill_server()
    scene.detected = 0.0
    scene.deployment.start_server()
    scene.submit(replace(scene.config, resume=True))


def unregistered_key(scene: Scene) -> None:
    """A stranger with the right certificate and a key that was never registered."""
    deployment = scene.deployment
    key = make_key(deployment.root / "stranger.key")
    knock(scene, deployment.node_command(0, key=key), "unregistered-key")


def wrong_authority(scene: Scene) -> None:
    """A node that trusts another authority."""
    other = make_certificates(scene.deployment.root / "other", [HOST])
    knock(scene, scene.deployment.node_command(0, root_certificates=other.ca), "wrong-authority")


def knock(scene: Scene, command: list[str], name: str) -> None:
    """Start a SuperNode that must be refused; it is, when its own log says why."""
    process = scene.deployment.spawn(name, command)
    log = scene.deployment.root / f"{name}.log"
    signs = (b"CERTIFICATE_VERIFY_FAILED", b"certificate verify failed", b"refused", b"Unauthenticated", b"401", b"403")
    scene.detected = scene.wait(lambda: process.poll() is not None or any(s in log.read_bytes() for s in signs), 60.0)
    print(b" ".join(log.read_bytes().split()[-25:]).decode(errors="replace"))
    stop(process)


FAULTS: dict[str, Callable[[Scene], None]] = {
    "none": lambda scene: None,
    "kill-node": kill_node,
    "restart-node": restart_node,
    "kill-superlink": kill_superlink,
    "unregistered-key": unregistered_key,
    "wrong-authority": wrong_authority,
}


def digest(folders: list[Path]) -> str:
    """Return a hash of all files of the client folders but those of runs."""
    made = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "runs" not in path.relative_to(folder).parts:
                made.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return made.hexdigest()


def play(name: str, config: RunConfig, folders: list[Path], root: Path) -> tuple[Scene, dict[str, Any] | str]:
    """Run once with one fault; return the scene and the result, or the error the run ended with."""
    scene_config = replace(config, out=str(root / "out"))
    with local_deployment(root / "deployment", folders) as deployment:
        scene = Scene(deployment, scene_config, root / "out")
        scene.submit(scene_config)
        scene.wait(lambda: scene.rounds() >= STRIKE_AFTER_ROUND)
        FAULTS[name](scene)
        try:
            return scene, scene.end()
        except UserError as error:
            return scene, str(error)


def main() -> None:
    """Print one line per fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="data set name, or a graph folder")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    asked = parser.parse_args()
    config = parse(
        {"data": asked.data, "clients": asked.clients, "rounds": asked.rounds, "min-valid-replies": asked.clients - 1}
        | {"node-timeout": 120.0, "round-timeout": 180.0, "device": "cpu"}
    )
    partition = prepare(config, print).folder
    folders = [partition / f"client-{client}" for client in range(asked.clients)]
    before = digest(folders)
    print(f"{'fault':<18}{'detected s':>11}{'rounds lost':>13}{'data lost':>11}{'accuracy':>10}{'seconds':>9}")
    for name in asked.faults:
        with tempfile.TemporaryDirectory() as root:
            begin = time.monotonic()
            scene, result = play(name, config, folders, Path(root))
            taken = time.monotonic() - begin
        lost = "none" if digest(folders) == before else "SOME"
        if isinstance(result, str):
            print(f"{name:<18}{scene.detected:>11.1f}  ended: {result}")
            continue
        short = sum(sum(size > 0 for size in row["bytes_up"].values()) < asked.clients for row in result["history"])
        print(
            f"{name:<18}{scene.detected:>11.1f}{short:>13}{lost:>11}{result['test_accuracy']:>10.4f}{taken:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
