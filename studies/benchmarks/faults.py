"""Faults in a federation: time to detection, rounds and data lost, accuracy.

    python studies/benchmarks/faults.py [--data cora] [--clients 5] [--rounds 6] [--faults kill-train ...]

One deployment on loopback (`local_deployment`: TLS, node authentication, a process per
SuperNode) takes all faults one after the other, each in a separate run, from round 2 on. Faults
hit client 0.

detected s     from the fault to the line or the round that shows it; "-": nothing to notice
rounds short   finished rounds without the update of some client
rounds lost    finished rounds that the result no longer has
data lost      whether files of the clients' data changed
accuracy       on the test nodes; the first row is the run without faults
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from fault_scene import NEVER, Scene, deploy, serve_again
from fault_tools import HOST

from dance_flwr.config.paths import HISTORY, RESULT
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.digests import data_digests
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy import prefork
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.errors import UserError
from dance_flwr.runs.processes import free_port
from dance_flwr.runs.result import read_result

STRIKE_AFTER_ROUNDS = 1
CUT_SECONDS = 60.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def no_fault(scene: Scene) -> None:
    """Do nothing."""


def killed(*words: str) -> Callable[[Scene], None]:
    """Return a fault: SIGKILL of client 0's SuperNode once its log has all words."""

    def strike(scene: Scene) -> None:
        logged = scene.log("node-0")
        if words:
            scene.wait(lambda: all(logged(word) for word in words))
        scene.deployment.kill_node(0)
        seen = scene.rounds()
        seconds = scene.wait(lambda: scene.misses(0) or scene.rounds() >= seen + 1)
        scene.detected = seconds if scene.misses(0) else NEVER
        scene.deployment.start_node(0)

    return strike


def restart(scene: Scene) -> None:
    """SIGKILL of client 0's SuperNode while it trains, and an immediate restart."""
    logged = scene.log("node-0")
    scene.wait(lambda: logged("Receiving: train") and logged("Start ClientApp"))
    scene.deployment.kill_node(0)
    begin = time.monotonic()
    serve_again(scene, 0)
    scene.notes.append(f"taken again after {time.monotonic() - begin:.0f} s")
    scene.wait(lambda: scene.misses(0))
    scene.detected = time.monotonic() - begin if scene.misses(0) else NEVER


def kill_app(scene: Scene) -> None:
    """SIGKILL of client 0's ClientApp while it trains, as when memory runs out."""
    logged = scene.log("node-0")
    scene.wait(lambda: logged("Receiving: train") and bool(_apps(scene)))
    for app in _apps(scene):
        app.kill()
    scene.detected = scene.wait(lambda: scene.misses(0))


def _apps(scene: Scene) -> list[psutil.Process]:
    """Return the ClientApps of client 0: the forks of the process that preloads the libraries."""
    apps = list[psutil.Process]()
    for process in psutil.Process(scene.deployment.nodes[0].pid).children(recursive=True):
        with suppress(psutil.Error):  # ended in the meantime
            apps += process.children() if prefork.__name__ in process.cmdline() else []
    return apps


def straggle(scene: Scene) -> None:
    """SIGSTOP of client 0's processes until a round has ended without it."""
    (main,) = [psutil.Process(scene.deployment.nodes[0].pid)]
    family = [main, *main.children(recursive=True)]
    for process in family:
        process.suspend()
    scene.detected = scene.wait(lambda: scene.misses(0))
    for process in family:
        if process.is_running():
            process.resume()


def kill_superlink(scene: Scene) -> None:
    """SIGKILL of SuperLink and ServerApp; restart on the same database, and resume the run."""
    before = scene.rounds()
    scene.deployment.kill_server()
    remaining = scene.rounds()
    begin = time.monotonic()
    scene.deployment.start_server()
    scene.submit(replace(scene.config, resume=True))
    scene.wait(lambda: scene.rounds() > remaining)
    scene.lost = max(0, before - remaining)
    scene.notes.append(f"next round finished {time.monotonic() - begin:.0f} s after the kill")


def cut(*which: int) -> Callable[[Scene], None]:
    """Return a fault: a cut of the network of these clients for 60 s; of all if none is named."""

    def strike(scene: Scene) -> None:
        cables = [scene.cables[client] for client in which] or list(scene.cables)
        for cable in cables:
            cable.cut()
        begin = time.monotonic()
        while time.monotonic() - begin < CUT_SECONDS:
            if scene.misses(0) and scene.detected != scene.detected:
                scene.detected = time.monotonic() - begin
            time.sleep(0.2)
        for cable in cables:
            cable.repair()

    return strike


def corrupt(mode: str) -> Callable[[Scene], None]:
    """Return a fault: client 0 uploads what cannot be averaged, until the server reports it."""

    def strike(scene: Scene) -> None:
        scene.corruption.set(mode)
        scene.detected = scene.wait(lambda: scene.misses(0))
        scene.corruption.set("")

    return strike


def replay(scene: Scene) -> None:
    """Resend each message of client 0's SuperNode, and the one before it, newly signed."""
    logged = scene.log("node-0")
    scene.corruption.set("replay")
    scene.pass_rounds(3)
    scene.corruption.set("")
    accepted = [n for n in range(1, 99) if logged(f"REPLAY answered: {n} objects wanted")]
    again = "yes" if accepted else "no"
    scene.notes.append(f"asked again for objects: {again}; refused: {logged('REPLAY refused')}")


def unregistered_key(scene: Scene) -> None:
    """Start a node with the right certificate and a key that was never registered."""
    key = make_key(scene.deployment.root / "stranger.key")
    knock(scene, scene.deployment.node_command(0, key=key), "unregistered-key")


def wrong_authority(scene: Scene) -> None:
    """Start a node that trusts another authority than the SuperLink's."""
    other = make_certificates(scene.deployment.root / "other", [HOST])
    knock(scene, scene.deployment.node_command(0, root_certificates=other.ca), "wrong-authority")


def expired_certificate(scene: Scene) -> None:
    """Start a SuperLink whose certificate has expired, and a node."""
    old = make_certificates(scene.deployment.root / "old", [HOST], now=LONG_AGO)
    port = free_port()
    command = [
        "flower-superlink",
        "--host",
        HOST,
        "--port",
        str(port),
        "--ssl-ca-certfile",
        str(old.ca),
    ]
    command += ["--ssl-certfile", str(old.certificate), "--ssl-keyfile", str(old.key)]
    server = scene.deployment.spawn("expired-superlink", command)
    logged = scene.log("expired-superlink")
    scene.wait(
        lambda: logged("Uvicorn running") or logged("Application startup complete"),
        60.0,
        during_run=False,
    )
    address = f"{HOST}:{port}"
    node = scene.deployment.node_command(0, root_certificates=old.ca, superlink=address)
    knock(scene, node, "expired-certificate")
    stop(server)


def knock(scene: Scene, command: list[str], name: str) -> None:
    """Start a SuperNode that must be refused; its own log must say why."""
    logged = scene.log(name)
    process = scene.deployment.spawn(name, command)
    signs = (
        "CERTIFICATE_VERIFY_FAILED",
        "certificate verify failed",
        "Unauthenticated",
        "401",
        "403",
        "expired",
    )
    refused = lambda: process.poll() is not None or any(logged(sign) for sign in signs)  # noqa: E731
    scene.detected = scene.wait(refused, 120.0, during_run=False)
    reasons = [sign for sign in signs if logged(sign)]
    scene.notes.append(
        f"its log: {reasons[0] if reasons else 'nothing'}; joined: {logged('SuperNode ID')}"
    )
    stop(process)


FAULTS: dict[str, Callable[[Scene], None]] = {
    "none": no_fault,
    "kill-wait": killed("Sent successfully"),
    "kill-receive": killed("Receiving: train"),
    "kill-train": killed("Receiving: train", "Start ClientApp"),
    "restart": restart,
    "kill-app": kill_app,
    "kill-send": killed("Sending: train"),
    "kill-validate": killed("Receiving: evaluate"),
    "straggler": straggle,
    "cut-node": cut(0),
    "cut-all": cut(),
    "kill-superlink": kill_superlink,
    "nan": corrupt("nan"),
    "shapes": corrupt("shapes"),
    "replay": replay,
    "unregistered-key": unregistered_key,
    "expired-certificate": expired_certificate,
    "wrong-authority": wrong_authority,
}
RAY = "kill-ray-worker"


def digest(folders: Sequence[Path]) -> list[dict[str, str]]:
    """Return the digests of the data of every client; runs leave other files beside them."""
    return [data_digests(folder) for folder in folders]


def play(name: str, scene: Scene) -> dict[str, Any] | str:
    """Run once with one fault; return the result, or the error line of the run."""
    scene.submit(scene.config)
    scene.wait(lambda: scene.rounds() >= STRIKE_AFTER_ROUNDS)
    FAULTS[name](scene)
    try:
        return scene.end()
    except UserError as error:
        return str(error)


def kill_ray_worker(config: RunConfig, root: Path) -> tuple[dict[str, Any] | str, float]:
    """Run under the simulation engine and SIGKILL one of Ray's actors during a round."""
    out, settings = root / "out", root / "settings.toml"
    root.mkdir()
    settings.write_text(to_toml(replace(config, out=str(out))), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "dance-flwr"), "run", "--config", str(settings)]
    process = ProcessTree(command, os.environ, root, root / "log")
    history = out / HISTORY
    while not (
        history.is_file() and history.read_text(encoding="utf-8").count("\n") >= STRIKE_AFTER_ROUNDS
    ):
        if process.poll() is not None:
            return (root / "log").read_text(errors="replace")[-300:], NEVER
        time.sleep(0.1)
    actors = [
        p for p in psutil.Process(process.pid).children(recursive=True) if "ClientApp" in p.name()
    ]
    if not actors:
        stop(process)
        raise SystemExit(
            "expected Ray actors named after the ClientApp, found none; nothing was killed"
        )
    seen = history.read_text(encoding="utf-8").count("\n")
    actors[0].send_signal(signal.SIGKILL)
    begin, detected = time.monotonic(), NEVER
    while process.poll() is None and detected != detected:
        time.sleep(0.1)
        if history.read_text(encoding="utf-8").count("\n") > seen:
            detected = time.monotonic() - begin  # the round of the fault is finished
    process.wait()
    if (out / RESULT).is_file():
        return read_result(out), detected
    return (root / "log").read_text(errors="replace").strip().splitlines()[-1], detected


def row(
    name: str,
    result: dict[str, Any] | str,
    scene: Scene | None,
    detected: float,
    data: str,
    took: float,
) -> str:
    """Return a line of the table."""
    seconds = "-" if detected != detected else f"{detected:.1f}"
    notes = "; ".join(scene.notes) if scene else ""
    if isinstance(result, str):
        return f"{name:<20}{seconds:>11}{'':>27}{data:>11}  ended: {result} {notes}"
    short = sum(bool(row["absent"]) for row in result["history"])
    lost = scene.lost if scene else 0
    cells = (
        f"{seconds:>11}{short:>14}{lost:>13}{data:>11}{result['test_accuracy']:>10.4f}{took:>8.0f}"
    )
    return f"{name:<20}{cells}  {notes}"


def matrix(config: RunConfig, folders: Sequence[Path], names: Sequence[str], root: Path) -> None:
    """Print a line per fault."""
    before = digest(folders)
    heading = f"{'detected s':>11}{'rounds short':>14}{'rounds lost':>13}{'data lost':>11}"
    heading += f"{'accuracy':>10}{'seconds':>8}"
    print(f"{'fault':<20}{heading}", flush=True)

    def state() -> str:
        return "none" if digest(folders) == before else "SOME"

    if set(names) - {RAY}:
        deployment, cables, corruption = deploy(root / "deployment", folders)
        try:
            for name in names:
                if name == RAY:
                    continue
                begin = time.monotonic()
                settings = {"straggler": {"round_timeout": 30.0}}.get(name, {})
                scene = Scene(
                    deployment,
                    cables,
                    corruption,
                    replace(config, out=str(root / name), **settings),
                )
                result = play(name, scene)
                print(
                    row(name, result, scene, scene.detected, state(), time.monotonic() - begin),
                    flush=True,
                )
        finally:
            deployment.close()
    if RAY in names:
        begin = time.monotonic()
        result, detected = kill_ray_worker(config, root / RAY)
        print(row(RAY, result, None, detected, state(), time.monotonic() - begin), flush=True)


def main() -> None:
    """Print one line per fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora", help="data set name, or a graph folder")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--faults", nargs="+", choices=[*FAULTS, RAY], default=[*FAULTS, RAY])
    options = parser.parse_args()
    values = {
        "data": options.data,
        "clients": options.clients,
        "rounds": options.rounds,
        "evaluate-every": 3,
    }
    values |= {
        "round-timeout": 150.0,
        "node-timeout": 120.0,
        "device": "cpu",
        "min-valid-replies": options.clients - 1,
    }
    config = parse(values)
    partition = prepare(config, print).folder
    folders = [partition / f"client-{client}" for client in range(options.clients)]
    with tempfile.TemporaryDirectory() as root:
        matrix(config, folders, options.faults, Path(root))


if __name__ == "__main__":
    main()
