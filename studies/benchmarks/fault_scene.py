"""A deployment on loopback with a run, for the injection and observation of faults."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_tools import Cable, Corruption
from local_deployment import LocalDeployment

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.tree import RunConfig
from dance_flwr.deploy.superlink import follow
from dance_flwr.runs.result import read_result

PATIENCE_SECONDS = 240.0
NEVER = float("nan")
RETRY_SECONDS = 5.0


@dataclass
class Scene:
    """A deployment with a run, and what was observed."""

    deployment: LocalDeployment
    cables: Sequence[Cable]
    corruption: Corruption
    config: RunConfig
    detected: float = NEVER
    lost: int = 0
    run_id: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The run's folder."""
        return Path(self.config.out)

    def history(self) -> list[dict[str, Any]]:
        """Return the rows of the finished rounds."""
        file = self.out / HISTORY
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return [json.loads(line) for line in lines]

    def rounds(self) -> int:
        """Return the number of finished rounds."""
        return len(self.history())

    def ended(self) -> bool:
        """Whether the run has ended, with a result or an error."""
        return (self.out / RESULT).is_file() or (self.out / ERROR).is_file()

    def wait(
        self, done: Callable[[], bool], seconds: float = PATIENCE_SECONDS, during_run: bool = True
    ) -> float:
        """Wait until `done` and return the seconds; NaN if it does not happen in time.

        Parameters
        ----------
        during_run : give up when the run ends
        """
        start = time.monotonic()
        while not done():
            if time.monotonic() - start > seconds or (during_run and self.ended()):
                return NEVER
            time.sleep(0.1)
        return time.monotonic() - start

    def log(self, process: str) -> Callable[[str], bool]:
        """Return a check whether a process has logged some words since this call."""
        file = self.deployment.root / f"{process}.log"
        start = file.stat().st_size if file.is_file() else 0
        return lambda words: (
            file.is_file() and words in file.read_bytes()[start:].decode(errors="replace")
        )

    def pass_rounds(self, count: int) -> None:
        """Wait until `count` more rounds are finished."""
        seen = self.rounds()
        self.wait(lambda: self.rounds() >= seen + count)

    def misses(self, client: int) -> bool:
        """Whether a finished round lacks this client's update."""
        return any(str(client) in row["absent"] for row in self.history())

    def submit(self, config: RunConfig) -> None:
        """Start or resume the run."""
        (self.out / ERROR).unlink(missing_ok=True)
        self.run_id = self.deployment.link.submit(config)

    def end(self) -> dict[str, Any]:
        """Wait for the end of the run; return its result."""
        follow(self.deployment.link, self.run_id, self.out, lambda row: None)
        return read_result(self.out)


def deploy(root: Path, folders: Sequence[Path]) -> tuple[LocalDeployment, list[Cable], Corruption]:
    """Start a deployment with a cable to each node and a corruptible node 0."""
    root.mkdir(parents=True)
    deployment = LocalDeployment(root, folders)
    cables = [Cable(deployment.port) for _ in folders]
    deployment.superlinks = {client: cable.address for client, cable in enumerate(cables)}
    corruption = Corruption(root / "corruption")
    deployment.environment["node-0"] = corruption.environment
    deployment.start_server()
    deployment.register()
    for client in range(len(folders)):
        deployment.start_node(client)
    logs = [root / f"node-{client}.log" for client in range(len(folders))]
    while not all(log.is_file() and b"SuperNode ID" in log.read_bytes() for log in logs):
        time.sleep(0.5)
    return deployment, cables, corruption


def serve_again(scene: Scene, client: int) -> None:
    """Start a SuperNode until Flower accepts it, as a service manager does.

    Flower refuses a node that died for a minute.
    """
    logged = scene.log(f"node-{client}")
    scene.deployment.start_node(client)
    while not logged("SuperNode ID"):
        time.sleep(RETRY_SECONDS)
        if scene.deployment.nodes[client].poll() is not None:
            scene.deployment.start_node(client)
