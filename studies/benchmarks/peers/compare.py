"""Seconds per round and test accuracy of peers beside `fedavg-full` and `dance`, on one thread.

    python studies/benchmarks/peers/compare.py FOLDER [--data cora] [--clients 5] [--rounds 60]

Every peer trains on the same tensors: the features, clients and splits of a partition that
dance-flwr prepared, exported for each seed. PyG, PyTorch and Flower are those of constraints.txt;
packages that only OpenFGL needs are installed, pinned, into a folder of their own. All contenders
run one after the other, in each seed again; a figure is the median over the seeds. Nothing else
should run on the machine. FOLDER keeps tensors, packages and runs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.graphs.codes import TEST, TRAIN, VAL
from dance_flwr.data.prepare import load, prepare
from dance_flwr.errors import UserError
from dance_flwr.runs.result import read_result

HERE = Path(__file__).parent
PEERS = ("pyg", "pytorch", "openfgl", "flower")
OURS = ("fedavg-full", "dance")
# Without their dependencies, which OpenFGL does not declare and dance-flwr has for the most part.
_OGB = ("ogb==1.3.6", "outdated==0.2.2", "littleutils==0.2.4", "six==1.17.0")
PACKAGES = {"openfgl": ("openfgl==1.1.0", "munkres==3.0.0", *_OGB)}


def export(config: RunConfig, folder: Path) -> None:
    """Write the tensors of each client, and of the whole graph, as `common.load` returns them."""
    partition, graph = prepare(config).folder, load(config)
    folder.mkdir(parents=True, exist_ok=True)
    row_of = {name: row for row, name in enumerate(graph.ids.tolist())}
    whole: dict[str, Any] = {}
    for number in range(config.clients):
        data = ClientData.of(partition / f"client-{number}", config)
        place = torch.tensor([row_of[name] for name in data.ids()])
        own = {"x": data.table.nodes.float(), "y": data.labels}
        own |= {name: data.split == code for name, code in _SPLITS.items()}
        edges = torch.stack([data.graph.rows.rows(), data.graph.rows.index])
        classes = len(data.card.class_names)
        content = own | {"edge_index": edges, "place": place, "classes": classes}
        torch.save(content, folder / f"client-{number}.pt")
        whole |= {"classes": classes}
        for name, values in own.items():
            empty = values.new_zeros(graph.num_nodes, *values.shape[1:])
            whole.setdefault(name, empty)[place] = values
    degrees = torch.from_numpy(graph.indptr).diff()
    source = torch.repeat_interleave(torch.arange(graph.num_nodes), degrees)
    whole["edge_index"] = torch.stack([source, torch.from_numpy(graph.indices)])
    torch.save(whole, folder / "all.pt")


_SPLITS = {"train": TRAIN, "val": VAL, "test": TEST}


def run_peer(name: str, tensors: Path, packages: Path, rounds: int, seed: int) -> dict[str, float]:
    """Run a peer in a process of its own; return its test accuracy and seconds per round."""
    own = packages / name
    if (wanted := PACKAGES.get(name)) and not own.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(own)]
        if subprocess.run([*pip, *wanted], check=False).returncode:
            raise UserError(f"{name}: expected {', '.join(wanted)} from the index, found not all")
    # The folder of the runners too: Ray's processes import them by name.
    path = os.pathsep.join([str(own), str(HERE)])
    runner = [sys.executable, HERE / f"run_{name}.py", tensors, str(rounds), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(runner, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_ours(method: str, config: RunConfig, values: dict[str, Any], out: Path) -> dict[str, float]:
    """Run a method of dance-flwr in a process of its own, which simulates all clients."""
    keys = values | {"method": method, "seed": config.seed, "out": out}
    settings = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    program = [Path(sys.executable).with_name("dance-flwr"), "run", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, check=True)
    result = read_result(out)
    seconds = [row["round_seconds"] for row in result["history"]]
    return {"test": result["test_accuracy"], "seconds": median(seconds[2:])}


def main() -> None:
    """Run the contenders and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-chunks", type=int, default=16)
    parser.add_argument("--only", nargs="+", choices=PEERS + OURS, default=PEERS + OURS)
    options = parser.parse_args()
    values = {"data": options.data, "clients": options.clients, "rounds": options.rounds}
    values |= {"max-chunks": options.max_chunks, "hidden-dim": 64, "local-epochs": 3}
    values |= {"device": "cpu", "text-pooling": "attention", "edge-gates": "none"}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.only}
    for seed in range(options.seeds):
        config = parse(values | {"seed": seed})
        tensors = options.folder / f"{Path(options.data).name}-{options.clients}-{seed}"
        export(config, tensors)
        for name in options.only:
            if name in PEERS:
                packages = options.folder / "packages"
                try:
                    figures = run_peer(name, tensors, packages, options.rounds, seed)
                except UserError as error:  # the others are compared without it
                    print(error, file=sys.stderr)
                    continue
            else:
                figures = run_ours(name, config, values, options.folder / f"run-{name}-{seed}")
            found[name].append(figures)
            print(seed, name, figures, file=sys.stderr, flush=True)
    print("| | test accuracy | seconds a round |\n| --- | --- | --- |")
    for name, rows in ((name, rows) for name, rows in found.items() if rows):
        test, seconds = (median(row[key] for row in rows) for key in ("test", "seconds"))
        print(f"| {name} | {test:.1%} | {seconds:.3f} |")


if __name__ == "__main__":
    main()
