"""A SuperLink: how it is started, and how the operator's commands submit, follow and query."""

import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dance_flwr.config.paths import ERROR, HISTORY, RESULT
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import RunConfig
from dance_flwr.deploy.bundle import submitted_app
from dance_flwr.deploy.certificates import Certificates
from dance_flwr.deploy.process_tree import ProcessTree
from dance_flwr.errors import UserError
from dance_flwr.runs.processes import tool
from dance_flwr.runs.result import whole_lines

OnRound = Callable[[Mapping[str, Any]], None]
NAME = "private"
_START_SECONDS = 60.0
_POLL_SECONDS = 0.5
_STATUS_EVERY_SECONDS = 15.0


@dataclass(frozen=True)
class SuperLink:
    """A running SuperLink on this machine, as `flwr` reaches it.

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
        app = submitted_app(self.home, config.method)
        answer = self.flwr("run", str(app), NAME, "--run-config", str(settings))
        return str(answer["run-id"])

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a `flwr` command; return its JSON."""
        command = [str(tool("flwr")), *arguments, "--format", "json"]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, text=True
        )
        said = done.stdout + done.stderr
        with suppress(ValueError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            # The exit status of `flwr` says nothing reliable; its JSON does (decision 2).
            if answer.get("success", True):
                return answer  # type: ignore[no-any-return]
            # Flower's reason follows what the command was about to do.
            said = answer.get("error-message", said).rpartition("\n\n")[2]
        reason = " ".join(said.split())
        raise UserError(
            f"flwr {arguments[0]}: expected an answer of `dance-flwr deploy serve`, found: {reason}"
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


def superlink_options(host: str, port: int, certificates: Certificates) -> list[str]:
    """Return the options of a SuperLink under TLS that knows its nodes by their keys."""
    # Flower authenticates nodes under TLS only.
    options = ["--host", host, "--port", str(port), "--enable-supernode-auth"]
    options += ["--ssl-ca-certfile", str(certificates.ca), "--ssl-keyfile", str(certificates.key)]
    options += ["--ssl-certfile", str(certificates.certificate)]
    return [*options, "--disable-runtime-dependency-installation"]


def operator_config(address: str, authority: Path) -> str:
    """Return the `config.toml` with which `flwr` reaches a SuperLink."""
    return (
        f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{address}"\n'
        f'root-certificates = "{authority}"\n'
    )


def wait_until_healthy(
    process: ProcessTree, address: str, log: Path, root_certificates: Path | None = None
) -> None:
    """Wait until the SuperLink at http(s)://host:port reports that it is healthy."""
    deadline = time.monotonic() + _START_SECONDS
    known = ssl.create_default_context(cafile=root_certificates)
    # Directly, whatever proxy the environment names.
    with httpx.Client(verify=known, timeout=1, trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                client.get(f"{address}/health").raise_for_status()
                return
            time.sleep(0.1)
    raise UserError(f"expected a SuperLink within {_START_SECONDS:.0f} s, found none; see {log}")


def follow(link: SuperLink, run_id: str, folder: Path, on_round: OnRound, seen: int = 0) -> None:
    """Follow the history of a run after its first `seen` rows, until a result or an error."""
    last_sign, known = time.monotonic(), _identity(folder)

    def has_ended() -> bool:
        return (folder / RESULT).is_file() or (folder / ERROR).is_file()

    while True:
        known = known or _identity(folder)
        # A run without its folder would compute for nobody.
        if _identity(folder) != known:
            raise UserError(
                f"{folder}: expected the folder of this run, found it removed; the run was stopped"
            )
        # Before the lines are read: a result that exists now was written after the last of them.
        ended = has_ended()
        lines = whole_lines(folder / HISTORY)
        for line in lines[seen:]:
            on_round(json.loads(line))
            last_sign = time.monotonic()
        seen = len(lines)
        if (folder / ERROR).is_file():
            raise UserError((folder / ERROR).read_text(encoding="utf-8").strip())
        if ended:
            return
        # Only after a silence, as each question is a process of `flwr`.
        if time.monotonic() - last_sign > _STATUS_EVERY_SECONDS:
            last_sign = time.monotonic()
            status = str(link.flwr("list", NAME, "--run-id", run_id)["runs"][0]["status"])
            # The files may have appeared before the status changed.
            if status.startswith("finished") and not has_ended():
                raise UserError(f"the run ended as {status!r} without a result; see {link.log}")
        time.sleep(_POLL_SECONDS)


def _identity(folder: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        stat = folder.stat()
        return stat.st_dev, stat.st_ino
    return None
