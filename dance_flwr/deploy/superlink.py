"""The SuperLink of a federation, as the operator's commands reach it: submit, follow, query."""

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import RunConfig
from dance_flwr.deploy.app_folder import submitted_app
from dance_flwr.deploy.process_tree import ProcessTree
from dance_flwr.errors import UserError
from dance_flwr.runs.history import whole_lines
from dance_flwr.runs.processes import tool

OnRound = Callable[[Mapping[str, Any]], None]
NAME = "private"
_START_SECONDS = 60.0
_POLL_SECONDS = 0.5
_STATUS_EVERY_SECONDS = 15.0


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

    def submit(self, config: RunConfig) -> str:
        """Submit the app with this config; return the run id."""
        settings = self.home / "run-config.toml"
        settings.write_text(to_toml(config), encoding="utf-8")
        app = submitted_app(self.home)
        answer = self.flwr("run", str(app), NAME, "--run-config", str(settings))
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


def follow(link: SuperLink, run_id: str, folder: Path, on_round: OnRound, seen: int = 0) -> None:
    """Follow the history of a run after its first `seen` rows, until a result or an error."""
    last_sign, known = time.monotonic(), _identity(folder)
    while True:
        known = known or _identity(folder)
        # A run whose folder was removed would compute for nobody.
        if _identity(folder) != known:
            raise UserError(
                f"{folder}: expected the folder of this run, found it removed; the run was stopped"
            )
        # Before the lines are read: a result that exists now was written after the last of them.
        done = (folder / RESULT).is_file() or (folder / ERROR).is_file()
        lines = whole_lines(folder / HISTORY)
        for line in lines[seen:]:
            on_round(json.loads(line))
            last_sign = time.monotonic()  # a row is a sign of life
        seen = len(lines)
        if (folder / ERROR).is_file():
            raise UserError((folder / ERROR).read_text(encoding="utf-8").strip())
        if done:
            return
        # Each question is a process of `flwr`, so it is asked after a silence only.
        if time.monotonic() - last_sign > _STATUS_EVERY_SECONDS:
            last_sign = time.monotonic()
            status = link.status(run_id)
            if (
                # Looked at again: the files may have appeared after the first look and before the
                # status.
                status.startswith("finished")
                and not (folder / RESULT).is_file()
                and not (folder / ERROR).is_file()
            ):
                raise UserError(f"the run ended as {status!r} without a result; see {link.log}")
        time.sleep(_POLL_SECONDS)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode, which tell a folder from another in its place; None without it."""
    with suppress(FileNotFoundError):
        facts = folder.stat()
        return facts.st_dev, facts.st_ino
    return None
