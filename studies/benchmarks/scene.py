"""A deployment on loopback with a run into which `faults.py` and `soak.py` inject faults.

Links that can be cut, a node that sends corrupted replies, and what the run shows of it.
"""

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from local_deployment import HOST, LocalDeployment

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.tree import RunConfig
from dance_flwr.deploy.superlink import follow
from dance_flwr.runs.processes import free_port
from dance_flwr.runs.result import read_result

PATIENCE_SECONDS = 240.0
NEVER = float("nan")
RETRY_SECONDS = 5.0


class Cable:
    """A TCP relay on loopback that can be cut: connections stay open, bytes stop.

    Parameters
    ----------
    port : of the server on 127.0.0.1
    """

    def __init__(self, port: int) -> None:
        self._target, self.address = port, f"{HOST}:{free_port()}"
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait()

    def cut(self) -> None:
        """Stop all bytes, in both directions."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def repair(self) -> None:
        """Let bytes pass again, in order."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        _, port = self.address.split(":")
        self._loop.run_until_complete(asyncio.start_server(self._connect, HOST, int(port)))
        ready.set()
        self._loop.run_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:  # no server: refuse, as the far end of a cable would
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            writer.transport.abort()
            return
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


# Python imports `sitecustomize` from PYTHONPATH at startup. The mode is read for each message: a
# node misbehaves and recovers without a restart. In mode "replay" the SuperNode signs and sends the
# previous message again.
_CORRUPTION = """
import os, sys
from pathlib import Path

program = " ".join(sys.orig_argv)


def mode():
    file = Path(os.environ["CORRUPTION"])
    return file.read_text() if file.is_file() else ""


if "dance_flwr.deploy.prefork" in program:
    import numpy as np
    from flwr.app import Array, ArrayRecord
    from flwr.supernode.runtime import run_clientapp

    push = run_clientapp.push_message

    def corrupt(array):
        values = array.numpy()
        if mode() == "nan":
            return Array(np.full_like(values, np.nan))
        return Array(values.ravel()[:-1].copy())

    def push_corrupted(client, message, context):
        if mode() in ("nan", "shapes") and message.metadata.message_type == "train":
            from dance_flwr.federation.wire import serialization

            message = serialization.unpack(message)
            for name, record in list(message.content.array_records.items()):
                corrupted = {key: corrupt(array) for key, array in record.items()}
                message.content[name] = ArrayRecord(corrupted)
            message = serialization.pack([message])[0]
        push(client, message, context)

    run_clientapp.push_message = push_corrupted

if "dance-flwr supernode" in program:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    push_once, sent = FleetHttpClient.PushMessages, []

    def push_again(self, request):
        answer = push_once(self, request)
        if mode() == "replay":
            for old in [*sent[-1:], request]:
                try:
                    objects = push_once(self, old).objects_to_push
                    print("REPLAY answered:", len(objects), "objects wanted", flush=True)
                except Exception as error:
                    print("REPLAY refused:", error, flush=True)
        sent.append(request)
        return answer

    FleetHttpClient.PushMessages = push_again
"""


class Corruption:
    """Makes one SuperNode, started with `environment`, misbehave while a mode is set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(dedent(_CORRUPTION), encoding="utf-8")
        self._file = folder / "mode"
        self.environment = {"PYTHONPATH": str(folder), "CORRUPTION": str(self._file)}

    def set(self, mode: str) -> None:
        """Send NaN ("nan"), too few numbers ("shapes"), messages twice ("replay"); "" = behave."""
        self._file.write_text(mode, encoding="utf-8")


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
