"""A private SuperLink on this machine: start, query, stop."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.simulation.app_folder import submitted_app
from dance_flwr.simulation.family import Family, start, stop, tool

NAME = "private"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink on this machine, and how `flwr` talks to it.

    Attributes
    ----------
    home : FLWR_HOME of the operator; its `config.toml` knows the link as `NAME`
    environment : of `flwr` commands; log : the SuperLink's log file
    """

    home: Path
    environment: dict[str, str]
    log: Path

    def submit(self, config: RunConfig, federation: str = "") -> str:
        """Submit the app with this config; return the run id.

        Parameters
        ----------
        federation : Flower's --federation-config, empty = none
        """
        settings = self.home / "run-config.toml"
        settings.write_text(to_toml(config), encoding="utf-8")
        app = submitted_app(self.home)
        more = ["--federation-config", federation] if federation else []
        answer = self.flwr("run", str(app), NAME, "--run-config", str(settings), *more)
        return str(answer["run-id"])

    def status(self, run_id: str) -> str:
        """Return the status of a run, such as "running" or "finished:completed"."""
        return str(self.flwr("list", NAME, "--run-id", run_id)["runs"][0]["status"])

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a `flwr` command; return its JSON.

        Raises
        ------
        UserError : the command failed; the message is its output
        """
        command = [str(tool("flwr")), *arguments, "--format", "json"]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, text=True
        )
        with suppress(ValueError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            if answer.get("success", True):
                return answer  # type: ignore[no-any-return]
        raise UserError(
            f"flwr {arguments[0]}: expected an answer, found: {(done.stdout + done.stderr).strip()}"
        )


@contextmanager
def private_superlink(log: Path) -> Iterator[SuperLink]:
    """Run a SuperLink in simulation mode, with its own home and free ports, during the block.

    Its working directory is its empty home. Ray workers import from there first, so another
    directory could shadow this app's `client_app.py`.
    """
    home = Path(tempfile.mkdtemp(prefix="dance-flwr-"))
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
        f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = flower_environment(home)
    command = [
        "flower-superlink",
        "--insecure",
        "--simulation",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    process = start(command, environment, home, log)
    try:
        wait_until_healthy(process, f"http://127.0.0.1:{port}", log)
        yield SuperLink(home, environment, log)
    finally:
        stop(process)
        shutil.rmtree(home, ignore_errors=True)


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment of a Flower process: its FLWR_HOME, no telemetry, no local proxy."""
    quiet = ("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "FLWR_DISABLE_UPDATE_CHECK")
    environment = (
        os.environ
        | dict.fromkeys(quiet, "1")
        | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    )
    environment["PATH"] = f"{tool('flwr').parent}{os.pathsep}{environment.get('PATH', '')}"
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost"
    return environment


def wait_until_healthy(
    process: Family, address: str, log: Path, root_certificates: Path | None = None
) -> None:
    """Wait until the SuperLink at http(s)://host:port reports that it is healthy.

    Raises
    ------
    UserError : it exited or does not answer in time
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if root_certificates:
        context = ssl.create_default_context(cafile=str(root_certificates))
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            opener.open(f"{address}/health", timeout=1).close()
            return
        time.sleep(0.1)
    raise UserError(f"expected a SuperLink within {_START_SECONDS:.0f} s, found none; see {log}")


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
