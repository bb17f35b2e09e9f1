"""Seconds per round and test accuracy of peers beside `fedavg-full` and `dance`, on one thread.

    python studies/benchmarks/peers/compare.py FOLDER [--data cora] [--rounds 40] [--seeds 3]

It prints a table in Markdown, and one of ratios: on Cora, with accuracy, and on a made-up graph of
14,376 nodes (`made_up.py`); with `--many` also on that graph with 100 and 500 clients. Every peer
trains on the same tensors: the features, clients and splits that dance-flwr prepared, exported for
each seed. PyG, PyTorch, Flower and Ray are those of constraints.txt; what only a peer needs is
installed, pinned, into a folder of its own. A peer that cannot be installed is left out. All
contenders run one after the other, in each seed again; a figure is the median over the seeds.
Nothing else should run on the machine. FOLDER keeps tensors, packages, logs and runs.
"""

import argparse
import json
import os
import re
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
RAY = ", Ray"
OURS = ("fedavg-full", "dance", f"fedavg-full{RAY}", f"dance{RAY}")
NAMES = {
    "pyg": "PyG, one model on all data",
    "pytorch": "bare PyTorch, the network of `fedavg-full`",
    "openfgl": "OpenFGL 1.1, FedAvg",
    "fedscope": "FederatedScope 0.3, FedAvg",
    "fedgraph": "FedGraph, FedAvg, Ray",
    "flower": "Flower's quickstart with PyG, Ray",
}
PEERS = tuple(NAMES)
NAMES |= {name: f"`{name}`, in process" for name in OURS[:2]}
NAMES |= {name: f"`{name.removesuffix(RAY)}`, Ray" for name in OURS[2:]}
# Without their dependencies: dance-flwr has them, or the runner makes stubs of them.
_FEDSCOPE = "alibaba/FederatedScope@0f172fa5fd6763a633b2401262e9648ea4ae1ff3"
_FEDGRAPH = "FedGraph/fedgraph@b7b073ec66e62d4868855f9d56fce3b18b1df2e9"
PACKAGES = {
    "openfgl": ("openfgl-lib==1.1.0",),
    "fedscope": (f"git+https://github.com/{_FEDSCOPE}", "pympler==1.1"),
    "fedgraph": (f"git+https://github.com/{_FEDGRAPH}", "attridict==0.0.9"),
}
RATIOS = (
    ("fedavg-full", "openfgl"),
    ("dance", "openfgl"),
    (f"fedavg-full{RAY}", "flower"),
    (f"dance{RAY}", "flower"),
    ("fedavg-full", "pytorch"),
)
MADE_UP, MADE_UP_ROUNDS = 14_376, 10
MANY, OF_MANY = (100, 500), ("openfgl", "fedscope", "fedavg-full", "dance")
Figures = dict[str, list[dict[str, float]]]


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
    """Run a peer in a process of its own; return its test accuracy and seconds per round.

    Raises
    ------
    UserError : it cannot be installed, or fails; one line says why
    """
    own, log = packages / name, tensors / f"{name}.log"
    if (wanted := PACKAGES.get(name)) and not own.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(own)]
        _logged([*pip, *wanted], log, f"{name} is left out, as it cannot be installed")
    # The folder of the runners too: Ray's processes import them by name.
    path = os.pathsep.join([str(own), str(HERE)])
    runner = [sys.executable, str(HERE / f"run_{name}.py"), str(tensors), str(rounds), str(seed)]
    printed = _logged(runner, log, f"{name} is left out, as it fails", PYTHONPATH=path)
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found


def _logged(program: list[str], log: Path, failed: str, **environment: str) -> str:
    """Return what a program prints; its errors go to a file, and the last of them into ours."""
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with log.open("w") as errors:
        done = subprocess.run(program, env=given, stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode:
        said = log.read_text(errors="replace")
        why = re.findall(r"\S*(?:fatal|ERROR|Error): .*", said) or said.split("\n")[-2:-1]
        raise UserError(f"{failed}: {''.join(why[-1:])} (all of it in {log})")
    return done.stdout


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
        program += ["--set", f"out={out}", "--overwrite"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, check=True)
    result = read_result(out if made_up is None else made_up / "run")
    seconds = [row["round_seconds"] for row in result["history"]]
    return {"test": result["test_accuracy"], "seconds": median(seconds[2:])}


def measured(
    values: dict[str, Any], seeds: int, folder: Path, contenders: list[str], made_up: int = 0
) -> Figures:
    """Run all contenders, seed by seed; return their figures by name.

    Parameters
    ----------
    values : keys of the configuration
    contenders : a peer that fails is removed
    made_up : nodes of a made-up graph; 0 = the data that `values` name
    """
    found: Figures = {name: [] for name in contenders}
    for seed in range(seeds):
        options = values | {"seed": seed}
        config = parse(options)
        clients = folder / f"made-up-{made_up}-{config.clients}-{seed}"
        if made_up and not clients.is_dir():
            make_clients(clients, made_up, config.clients, seed)
        if made_up:
            graph = make_graph(made_up, config.clients, seed)
        else:
            clients, graph = prepare(config).folder, load(config)
        tensors = folder / f"{Path(config.data).name}-{made_up}-{config.clients}-{seed}"
        export(config, clients, graph, tensors)
        for name in contenders.copy():
            if name in PEERS:
                try:
                    figures = run_peer(name, tensors, folder / "packages", config.rounds, seed)
                except UserError as error:  # the others are compared without it
                    print(error, file=sys.stderr)
                    contenders.remove(name)
                    found[name].clear()
                    continue
            elif made_up and name.endswith(RAY):
                continue
            else:
                own = clients if made_up else None
                figures = run_ours(name, options, own, folder / f"run-{name}-{seed}")
            found[name].append(figures)
            print(seed, name, figures, file=sys.stderr, flush=True)
    return found


def seconds(column: Figures, name: str) -> float | None:
    """Return the median over the seeds, or None where a contender did not run."""
    rows = column.get(name)
    return median(row["seconds"] for row in rows) if rows else None


def tables(columns: dict[str, Figures], contenders: list[str]) -> list[str]:
    """Return the lines of both tables; the first column has the test accuracy too."""
    titles = f"{' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}"
    lines = [f"| seconds a round | {titles}"]
    for name in contenders:
        row = f"| {NAMES[name]} |"
        for place, column in enumerate(columns.values()):
            found = seconds(column, name)
            row += " -" if found is None else f" {found:.3f}"
            if found is not None and place == 0:
                row += f" ({median(figures['test'] for figures in column[name]):.1%})"
            row += " |"
        lines.append(row)
    lines += ["", f"| ratio | {titles}"]
    for ours, peer in RATIOS:
        row = f"| {NAMES[ours]} / {NAMES[peer]} |"
        for column in columns.values():
            over, under = seconds(column, ours), seconds(column, peer)
            row += f" {over / under:.2f} |" if over and under else " - |"
        lines.append(row)
    return lines


def main() -> None:
    """Run the contenders and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PEERS + OURS, default=PEERS + OURS)
    parser.add_argument("--many", action="store_true", help="also 100 and 500 clients")
    options = parser.parse_args()
    values = {"data": options.data, "clients": options.clients, "rounds": options.rounds}
    values |= {"max-chunks": 16, "hidden-dim": 64, "local-epochs": 3}
    values |= {"device": "cpu", "text-pooling": "attention", "edge-gates": "none"}
    contenders, title = list(options.only), f"{Path(options.data).name}, {options.clients} clients"
    columns = {title: measured(values, options.seeds, options.folder, contenders)}
    values |= {"rounds": min(MADE_UP_ROUNDS, options.rounds), "data": "made-up"}
    for clients in (options.clients, *(MANY if options.many else ())):
        few = clients == options.clients
        names = [name for name in contenders if few or name in OF_MANY]
        given = values | {"clients": clients}, options.seeds, options.folder, names, MADE_UP
        columns[f"made up, {MADE_UP:,} nodes, {clients} clients"] = measured(*given)
    print("\n".join(tables(columns, list(options.only))))


if __name__ == "__main__":
    main()
