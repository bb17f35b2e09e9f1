"""Faults in a federation: time to detection, rounds and data lost, accuracy.

    python studies/benchmarks/faults.py [--data cora] [--clients 5] [--faults kill-train ...]

One deployment on loopback (TLS, node authentication, a process per SuperNode) takes all faults one
after the other, each in its own run, from round 2 on. Faults hit client 0.

detected s     from the fault to the line or the round that shows it; "-": nothing to notice
rounds short   finished rounds without the update of some client
rounds lost    finished rounds that the result no longer has
data lost      whether files of the clients' data changed
accuracy       on the test nodes; the first row is the run without faults
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from local_deployment import HOST
from scene import NEVER, Scene, deploy, serve_again

from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.digests import data_digests
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy import prefork
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.federation import superlink_options
from dance_flwr.deploy.process_tree import stop
from dance_flwr.errors import UserError
from dance_flwr.runs.processes import free_port

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
    seen = scene.rounds()
    scene.wait(lambda: scene.rounds() >= seen + 3)
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
    command = ["flower-superlink", *superlink_options(HOST, port, old)]
    server = scene.deployment.spawn("expired-superlink", command)
    logged = scene.log("expired-superlink")
    scene.wait(lambda: logged("startup complete"), 60.0, during_run=False)
    address = f"{HOST}:{port}"
    node = scene.deployment.node_command(0, root_certificates=old.ca, superlink=address)
    knock(scene, node, "expired-certificate")
    stop(server)


def knock(scene: Scene, command: list[str], name: str) -> None:
    """Start a SuperNode that must be refused; its own log must say why."""
    logged = scene.log(name)
    process = scene.deployment.spawn(name, command)
    signs = ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed", "Unauthenticated")
    signs += ("401", "403", "expired")
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


def play(name: str, scene: Scene) -> dict[str, Any] | str:
    """Run once with one fault; return the result, or the error line of the run."""
    scene.submit(scene.config)
    scene.wait(lambda: scene.rounds() >= STRIKE_AFTER_ROUNDS)
    FAULTS[name](scene)
    try:
        return scene.end()
    except UserError as error:
        return str(error)


def matrix(config: RunConfig, folders: Sequence[Path], names: Sequence[str], root: Path) -> None:
    """Print a line per fault."""
    before = [data_digests(folder) for folder in folders]
    line = "{:<20} {:>10} {:>13} {:>12} {:>10} {:>9} {:>7}  {}"
    headings = ("detected s", "rounds short", "rounds lost", "data lost", "accuracy", "seconds")
    print(line.format("fault", *headings, ""), flush=True)
    deployment, cables, corruption = deploy(root / "deployment", folders)
    try:
        for name in names:
            begin, patience = time.monotonic(), config.round_timeout
            settings = replace(
                config,
                out=str(root / name),
                round_timeout=30.0 if name == "straggler" else patience,
            )
            scene = Scene(deployment, cables, corruption, settings)
            result = play(name, scene)
            notes, short, accuracy = "; ".join(scene.notes), "", ""
            if isinstance(result, str):
                notes = f"ended: {result} {notes}"
            else:
                short = str(sum(bool(row["absent"]) for row in result["history"]))
                accuracy = f"{result['test_accuracy']:.4f}"
            detected = "-" if scene.detected != scene.detected else f"{scene.detected:.1f}"
            kept = [data_digests(folder) for folder in folders] == before
            cells = (detected, short, scene.lost, "none" if kept else "SOME", accuracy)
            print(line.format(name, *cells, f"{time.monotonic() - begin:.0f}", notes), flush=True)
    finally:
        deployment.close()


def main() -> None:
    """Print one line per fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora", help="data set name, or a graph folder")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--faults", nargs="+", choices=[*FAULTS], default=[*FAULTS])
    options = parser.parse_args()
    values = {"data": options.data, "clients": options.clients, "rounds": options.rounds}
    values |= {"evaluate-every": 3, "round-timeout": 150.0, "node-timeout": 120.0}
    values |= {"device": "cpu", "min-valid-replies": options.clients - 1}
    config = parse(values)
    partition = prepare(config, print).folder
    folders = [partition / f"client-{client}" for client in range(options.clients)]
    with tempfile.TemporaryDirectory() as root:
        matrix(config, folders, options.faults, Path(root))


if __name__ == "__main__":
    main()
