"""A private SuperLink on this machine: start, query, stop."""

import json
import os
import secrets
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
from dance_flwr.runs.simulation.app_folder import submitted_app
from dance_flwr.runs.simulation.process_tree import ProcessTree, stop, tool

NAME, HOST = "private", "127.0.0.1"
_START_SECONDS = 60.0
# Bytes. A socket's path may have 103 (macOS) or 107, of which Ray and this module use 88.
_LONGEST_PARENT = 15


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
        """Submit the app with this config; return the run id."""
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
        """Run a `flwr` command; return its JSON."""
        command = [str(tool("flwr")), *arguments, "--format", "json"]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, text=True
        )
        with suppress(ValueError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            # The exit status of `flwr` says nothing reliable; its JSON does (decision 2).
            if answer.get("success", True):
                return answer  # type: ignore[no-any-return]
        raise UserError(
            f"flwr {arguments[0]}: expected an answer, found: {(done.stdout + done.stderr).strip()}"
        )


@contextmanager
def private_superlink(log: Path) -> Iterator[SuperLink]:
    """Run a SuperLink in simulation mode, with its own home and free ports, during the block.

    Its working directory is its empty home, which other users can neither read nor write. Ray
    workers import from there first, so another directory could shadow this app's `client_app.py`.
    """
    home = private_folder()
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
        f'address = "{HOST}:{port}"\ninsecure = true\n'
    )
    environment = flower_environment(home) | _ray_environment(home)
    # Why (decision 2): with its working directory first on the path, a process runs whatever
    # project it was started in.
    command = ["python", "-P", "-m", "dance_flwr.runs.simulation.superlink_process", str(port)]
    try:
        process = ProcessTree(command, environment, home, log, scratch=True)
        try:
            wait_until_healthy(process, f"http://{HOST}:{port}", log)
            yield SuperLink(home, environment | process.badge, log)
        except BaseException:
            stop(process)
            raise
        stop(process, ask=False)  # all is written; Ray takes seconds to end when asked
    finally:
        shutil.rmtree(home, ignore_errors=True)


def private_folder() -> Path:
    """Return a new folder of this user alone, short enough for the paths of Ray's sockets."""
    short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PARENT
    # Mode 0700. Why (decision 2): Ray's default below /tmp/ray is writable by every user.
    return Path(tempfile.mkdtemp(prefix="dance-flwr-", dir=None if short else "/tmp"))


def _ray_environment(home: Path) -> dict[str, str]:
    """Return what makes Ray private: loopback only, a token for every call, files in `home`.

    Ray names the switch for loopback after the systems where it is the default. `RAY_ADDRESS` of
    the caller could send the run to another cluster.
    """
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Why (decision 2): Ray listens everywhere by default, and runs tasks for whoever reaches
        # it.
        "RAY_ADDRESS": "local",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_TMPDIR": str(home),
    }


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment of a Flower process: its FLWR_HOME, no telemetry, no local proxy."""
    # Installing dependencies for each run fails without a network, and is not needed here.
    quiet = ("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "FLWR_DISABLE_UPDATE_CHECK")
    environment = (
        os.environ
        | dict.fromkeys(quiet, "1")
        | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    )
    environment["PATH"] = f"{tool('flwr').parent}{os.pathsep}{environment.get('PATH', '')}"
    # A proxy of the caller must not be asked for addresses of this machine.
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost"
    return environment


def wait_until_healthy(
    process: ProcessTree, address: str, log: Path, root_certificates: Path | None = None
) -> None:
    """Wait until the SuperLink at http(s)://host:port reports that it is healthy."""
    # Directly, whatever proxy the environment names.
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
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
