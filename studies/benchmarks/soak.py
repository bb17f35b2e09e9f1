"""A long run whose nodes are killed now and then: memory over time, accuracy without faults.

    python studies/benchmarks/soak.py [--data cora] [--clients 3] [--rounds 200] [--every 10]

A deployment on loopback (TLS, node authentication, a process per SuperNode). Every few rounds a
random node gets SIGKILL and is restarted, as by a service manager; no round continues without it.
The run that it is compared with is in one process, without faults.
"""

import argparse
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
from scene import NEVER, Scene, deploy, serve_again

from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.runs.simulation.in_process import run_in_process


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    """Return the proportional memory of a process and its descendants, in MB."""
    total = 0
    parent = psutil.Process(process.pid)
    for member in [parent, *parent.children(recursive=True)]:
        try:
            total += member.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


def soak(config: RunConfig, folders: Sequence[Path], every: int, root: Path) -> None:
    """Kill a random node every few rounds; print memory over time, and both accuracies."""
    deployment, cables, corruption = deploy(root / "deployment", folders)
    chance = random.Random(config.seed)
    scene = Scene(deployment, cables, corruption, replace(config, out=str(root / "out")))
    heading = f"{'round':>6}{'server MB':>11}{'nodes MB':>10}{'killed':>8}{'seconds':>9}"
    try:
        start = time.monotonic()
        scene.submit(scene.config)
        print(heading, flush=True)
        for round_ in range(every, config.rounds, every):
            scene.wait(lambda: scene.rounds() >= round_, float("inf"))  # noqa: B023
            if scene.ended():
                break
            nodes = sum(memory_mb(node) for node in deployment.nodes.values()) / len(
                deployment.nodes
            )
            client = chance.randrange(len(folders))
            server = memory_mb(deployment.server) if deployment.server else NEVER
            seconds = time.monotonic() - start
            print(f"{round_:>6}{server:>11.0f}{nodes:>10.0f}{client:>8}{seconds:>9.0f}", flush=True)
            deployment.kill_node(client)
            serve_again(scene, client)
        result = scene.end()
        calm = run_in_process(config, root / "calm", lambda row: None)
        short = sum(bool(row["absent"]) for row in result["history"])
        print(f"rounds {len(result['history'])}, of them without some client {short}")
        print(
            f"test accuracy {result['test_accuracy']:.4f}, undisturbed {calm['test_accuracy']:.4f}"
        )
        models = [str(each["model_fingerprint"]) for each in (result, calm)]
        print(f"models {', '.join(models)}: {'equal' if models[0] == models[1] else 'DIFFER'}")
    finally:
        deployment.close()


def main() -> None:
    """Print a line per kill, and both accuracies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cora", help="data set name, or a graph folder")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, metavar="ROUNDS", help="between two kills")
    options = parser.parse_args()
    values = {
        "data": options.data,
        "clients": options.clients,
        "rounds": options.rounds,
        "evaluate-every": options.every,
    }
    # All clients in every round: then a run with kills ends with the bits of one without.
    values |= {"node-timeout": 120.0, "device": "cpu", "min-valid-replies": options.clients}
    config = parse(values)
    partition = prepare(config, print).folder
    with tempfile.TemporaryDirectory() as root:
        soak(
            config,
            [partition / f"client-{client}" for client in range(options.clients)],
            options.every,
            Path(root),
        )


if __name__ == "__main__":
    main()
