"""Run the app: in this process, or under a private SuperLink that is started and stopped with the run."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dance_flwr.config import RunConfig, flatten
from dance_flwr.config_text import to_toml
from dance_flwr.errors import UserError
from dance_flwr.paths import PROJECT
from dance_flwr.results import ERROR, HISTORY, RESULT

OnRound = Callable[[Mapping[str, Any]], None]
_POLL_SECONDS = 0.5
_STATUS_EVERY_SECONDS = 15.0
_START_SECONDS = 60.0


def run_in_process(config: RunConfig, folder: Path, on_round: OnRound, name: str = "") -> dict[str, Any]:
    """Run the unmodified ServerApp and ClientApp in this process, clients one after the other; return the result.

    Parameters
    ----------
    folder : receives `result.json`, `model.safetensors`, `history.jsonl`
    on_round : receives each finished row of the history
    name : of the run, and so of its folder at each client; empty = a new one
    """
    import logging

    with _apps():
        import client_app
        import server_app
        from dance_flwr.strategies.inprocess import InProcessGrid

        logging.getLogger("flwr").setLevel(logging.ERROR)
        run_id = time.time_ns()
        grid = InProcessGrid(client_app.app, flatten(config), config.clients, run_id=run_id)
        server_app.run(grid, config, name or str(run_id), folder, on_round)
    return read_result(folder)


def run_under_flower(config: RunConfig, folder: Path, on_round: OnRound) -> dict[str, Any]:
    """Run through Flower's simulation engine on a private SuperLink; return the result.

    `flwr run` reports success even when the ServerApp failed, so success is what the ServerApp itself left behind:
    `result.json`, or else `error.txt` with the reason.

    Raises
    ------
    UserError : the run failed; the message is the ServerApp's own, or names the log
    """
    for name in (RESULT, ERROR, HISTORY):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with private_superlink(folder / "superlink.log") as link:
        run_id = link.submit(config)
        _wait(link, run_id, folder, on_round)
    return read_result(folder)


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of `result.json`.

    Raises
    ------
    UserError : there is none
    """
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"expected {RESULT} of a finished run, found none in {folder}")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SuperLink:
    """A running private SuperLink.

    Attributes
    ----------
    home : its FLWR_HOME; environment : for `flwr` commands that talk to it; log : its log file
    """

    home: Path
    environment: dict[str, str]
    log: Path

    def submit(self, config: RunConfig) -> str:
        """Hand in the app with this config; return the run id."""
        settings = self.home / "run-config.toml"
        settings.write_text(to_toml(config), encoding="utf-8")
        federation = f"num-supernodes={config.clients} client-resources-num-cpus=1"
        share = _gpu_share(config)
        federation += f" client-resources-num-gpus={share:g}" if share else ""
        answer = self._flwr(
            "run", str(app_dir()), "private", "--run-config", str(settings), "--federation-config", federation
        )
        return str(answer["run-id"])

    def status(self, run_id: str) -> str:
        """Return the status of a run, such as "running" or "finished:completed"."""
        return str(self._flwr("list", "private", "--run-id", run_id)["runs"][0]["status"])

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        command = [str(_tool("flwr")), *arguments, "--format", "json"]
        done = subprocess.run(command, env=self.environment, cwd=self.home, capture_output=True, text=True)
        with suppress(ValueError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            if answer.get("success", True):
                return answer  # type: ignore[no-any-return]
        raise UserError(f"flwr {arguments[0]}: expected an answer, found: {(done.stdout + done.stderr).strip()}")


@contextmanager
def private_superlink(log: Path) -> Iterator[SuperLink]:
    """Start a SuperLink in simulation mode with its own home and free ports; stop it and all it started.

    Its working directory is its empty home: Ray workers import from there first, so any other directory could put
    somebody else's `client_app.py` ahead of ours.
    """
    home = Path(tempfile.mkdtemp(prefix="dance-flwr-"))
    port = _free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "private"\n\n[superlink.private]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    quiet = ("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "FLWR_DISABLE_UPDATE_CHECK")
    environment = os.environ | dict.fromkeys(quiet, "1") | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    environment["PATH"] = f"{_tool('flwr').parent}{os.pathsep}{environment.get('PATH', '')}"
    # The private link is on this machine: a proxy must not be asked for it.
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost"
    command = [str(_tool("flower-superlink")), "--insecure", "--simulation", "--host", "127.0.0.1"]
    command += ["--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=home, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_until_healthy(process, port, log)
        yield SuperLink(home, environment, log)
    finally:
        _stop(process)
        shutil.rmtree(home, ignore_errors=True)


def _wait(link: SuperLink, run_id: str, folder: Path, on_round: OnRound) -> None:
    """Follow the run's history until the ServerApp leaves a result or an error behind."""
    seen, asked = 0, time.monotonic()
    while True:
        done = (folder / RESULT).is_file() or (folder / ERROR).is_file()
        history = folder / HISTORY
        lines = history.read_text(encoding="utf-8").splitlines() if history.is_file() else []
        for line in lines[seen:]:
            on_round(json.loads(line))
        seen = len(lines)
        if (folder / ERROR).is_file():
            raise UserError((folder / ERROR).read_text(encoding="utf-8").strip())
        if done:
            return
        if time.monotonic() - asked > _STATUS_EVERY_SECONDS:
            asked = time.monotonic()
            status = link.status(run_id)
            if status.startswith("finished") and not (folder / RESULT).is_file() and not (folder / ERROR).is_file():
                raise UserError(f"the run ended as {status!r} without a result; see {link.log}")
        time.sleep(_POLL_SECONDS)


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            opener.open(f"http://127.0.0.1:{port}/health", timeout=1).close()
            return
        time.sleep(0.1)
    raise UserError(f"expected a SuperLink within {_START_SECONDS:.0f} s, found none; see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the SuperLink and every process below it, Ray's included; ask first, then kill."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
        for member in reversed(family):
            with suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=10)
        for member in alive:
            with suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


def app_dir() -> Path:
    """Return the folder of the Flower app: the one with our pyproject.toml.

    Raises
    ------
    UserError : the package was installed without it
    """
    path = PROJECT / "pyproject.toml"
    if path.is_file() and tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] == "dance-flwr":
        return PROJECT
    raise UserError(
        f"expected the app's pyproject.toml in {PROJECT}, found none; install from a checkout with "
        "`pip install -e .`, or add --in-process"
    )


@contextmanager
def _apps() -> Iterator[None]:
    """Make the top-level apps importable."""
    sys.path.insert(0, str(PROJECT))
    try:
        yield
    finally:
        sys.path.remove(str(PROJECT))


def _tool(name: str) -> Path:
    """Return a command of this environment, not of whichever comes first on PATH."""
    return Path(sys.executable).parent / name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _gpu_share(config: RunConfig) -> float:
    """Return the share of a GPU per client: all visible GPUs divided among the clients, at most one each."""
    import torch

    if config.device != "auto" or not torch.cuda.is_available():
        return 0.0
    return min(1.0, torch.cuda.device_count() / config.clients)
