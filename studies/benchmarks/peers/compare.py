"""Seconds per round and test accuracy of peers beside `fedavg-full` and `dance`, on one thread.

    python studies/benchmarks/peers/compare.py FOLDER [--data cora] [--rounds 40] [--seeds 3]

It prints a table in Markdown: on Cora, with accuracy, and on a made-up graph of 14,376 nodes
(`made_up.py`). Every peer trains on the same tensors: the features, clients and splits that
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
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.prepare import load, prepare
from dance_flwr.errors import UserError
from dance_flwr.runs.result import read_result

sys.path.insert(0, str(Path(__file__).parents[1]))

from made_up import make_clients, make_graph

HERE = Path(__file__).parent
PEERS = ("pyg", "pytorch", "openfgl", "flower")
RAY = ", Ray"
OURS = ("fedavg-full", "dance", f"fedavg-full{RAY}", f"dance{RAY}")
NAMES = {
    "pyg": "PyG, one model on all data",
    "pytorch": "bare PyTorch, the network of `fedavg-full`",
    "openfgl": "OpenFGL 1.1, FedAvg",
    "flower": "Flower's quickstart with PyG, Ray",
}
MADE_UP, MADE_UP_ROUNDS = 14_376, 10
# Without their dependencies, which OpenFGL does not declare and dance-flwr has for the most part.
_OGB = ("ogb==1.3.6", "outdated==0.2.2", "littleutils==0.2.4", "six==1.17.0")
PACKAGES = {"openfgl": ("openfgl==1.1.0", "munkres==3.0.0", *_OGB)}


def export(config: RunConfig, partition: Path, graph: TextGraph, folder: Path) -> None:
    """Write the tensors of each client, and of the whole graph, as `common.load` returns them."""
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


def run_ours(
    name: str, options: dict[str, Any], made_up: Path | None, out: Path
) -> dict[str, float]:
    """Run a method of dance-flwr in a process of its own, which simulates all clients.

    Parameters
    ----------
    options : keys of the configuration; made_up : folder of made-up clients; None = they are named
    """
    keys = options | {"method": name.removesuffix(RAY)}
    program = [sys.executable, HERE.parent / "made_up.py", made_up, "--run", "overwrite=true"]
    program += [f"{key}={value}" for key, value in keys.items() if key not in ("data", "clients")]
    if made_up is None:
        engine = ["--engine", "ray"] if name.endswith(RAY) else []
        settings = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        program = [Path(sys.executable).with_name("dance-flwr"), "run", *engine, *settings]
        program += ["--set", f"out={out}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, check=True)
    result = read_result(out if made_up is None else made_up / "run")
    seconds = [row["round_seconds"] for row in result["history"]]
    return {"test": result["test_accuracy"], "seconds": median(seconds[2:])}


def measured(
    values: dict[str, Any], seeds: int, folder: Path, contenders: list[str], made_up: int = 0
) -> dict[str, list[dict[str, float]]]:
    """Run all contenders, seed by seed; return their figures by name.

    Parameters
    ----------
    values : keys of the configuration
    made_up : nodes of a made-up graph; 0 = the data that `values` name
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for seed in range(seeds):
        options = values | {"seed": seed}
        config, clients = parse(options), folder / f"made-up-{made_up}-{seed}"
        if made_up and not clients.is_dir():
            make_clients(clients, made_up, config.clients, seed)
        if made_up:
            graph = make_graph(made_up, config.clients, seed)
        else:
            clients, graph = prepare(config).folder, load(config)
        tensors = folder / f"{Path(config.data).name}-{made_up}-{config.clients}-{seed}"
        export(config, clients, graph, tensors)
        for name in contenders:
            if name in PEERS:
                try:
                    figures = run_peer(name, tensors, folder / "packages", config.rounds, seed)
                except UserError as error:  # the others are compared without it
                    print(error, file=sys.stderr)
                    continue
            elif made_up and name.endswith(RAY):
                continue
            else:
                own = clients if made_up else None
                figures = run_ours(name, options, own, folder / f"run-{name}-{seed}")
            found[name].append(figures)
            print(seed, name, figures, file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Run the contenders and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PEERS + OURS, default=PEERS + OURS)
    options = parser.parse_args()
    values = {"data": options.data, "clients": options.clients, "rounds": options.rounds}
    values |= {"max-chunks": 16, "hidden-dim": 64, "local-epochs": 3}
    values |= {"device": "cpu", "text-pooling": "attention", "edge-gates": "none"}
    given = options.seeds, options.folder, list(options.only)
    small = measured(values, *given)
    rounds = {"rounds": min(MADE_UP_ROUNDS, options.rounds), "data": "made-up"}
    large = measured(values | rounds, *given, MADE_UP)
    data, clients = Path(options.data).name, f"{options.clients} clients"
    print(f"| seconds a round | {data}, {clients} (test) | made up, {MADE_UP:,} nodes, {clients} |")
    print("| --- | --- | --- |")
    for name in options.only:
        cells = []
        for rows, scored in ((small[name], True), (large[name], False)):
            cell = f"{median(row['seconds'] for row in rows):.3f}" if rows else ""
            test = f" ({median(row['test'] for row in rows):.1%})" if rows and scored else ""
            cells.append(cell + test)
        plain = f"`{name.removesuffix(RAY)}`, " + ("Ray" if name.endswith(RAY) else "in process")
        print(f"| {NAMES.get(name, plain)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
