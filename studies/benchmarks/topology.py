"""What alpha, beta, the prior, the scale of x_v and the stopping rule do to the edges of Alg. 4.

    dance-flwr run --data FOLDER_WITH_CORA --set rounds=20 --out RUN
    python studies/benchmarks/topology.py RUN [RUN ...] [--alpha 4 8 12] [--beta 3 5 10]

Reads the last core of every client of finished runs of `dance` and prints means over clients:
coefficients that are not zero, edges per node, steps, the objective above its minimum, edges
shared with those of the minimum (Jaccard), edges of the minimum that change (1 - Jaccard) if S is
its mean, if S is left out and if beta is doubled, and CPU milliseconds of Alg. 4 on one core. Rows
"plain" are x_v as they are and twenty plain steps, as the algorithm is printed. Minima have a gap
of 1e-6 in float64.
"""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import Tensor
from torch.nn import functional

from dance_flwr.dance.algorithm import select_evidence
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.passes import DanceClient
from dance_flwr.dance.plan import Condensation
from dance_flwr.dance.state import (
    CONDENSATION,
    read_stored,
)
from dance_flwr.dance.text import condensed_text
from dance_flwr.dance.topology import (
    Coefficients,
    column_problems,
    find_candidates,
    synthesise_adjacency,
)
from dance_flwr.nn.lasso import Lassos, solve_lassos
from dance_flwr.runs.evidence import FinishedRun

PLAIN_STEPS = 20
NUMBERS = ("non-zero %", "edges/node", "steps", "above minimum %", "Jaccard")
HEAD = ("rows", "alpha", "beta", *NUMBERS, "S mean %", "no S %", "beta x2 %", "CPU ms")


@dataclass(frozen=True)
class Core:
    """x_v, t~_v and classes of the nodes of a core, and the settings of its run."""

    fused: Tensor
    evidence: Tensor
    classes: Tensor
    settings: DanceConfig


@torch.no_grad()
def cores(folder: Path, *, all_nodes: bool) -> Iterator[Core]:
    """Yield the last core of every client of a finished run, or all its nodes."""
    run = FinishedRun.open(folder)
    for client in run.clients:
        data = run.data(client)
        model = run.explainer(data).model.eval()
        store = run.client_run_folder(data)
        nodes = torch.arange(data.num_nodes) if all_nodes else store.load(data.device).core
        condensation = read_stored(store.latest(CONDENSATION), Condensation, data.device)
        reader = DanceClient(model, data, run.settings, data.training_graph)
        hidden, selection = select_evidence(reader, nodes, condensation.difficulty)
        labels = data.train_labels[nodes]
        classes = torch.where(labels >= 0, labels, model.graph_logits(hidden).argmax(dim=1))
        text, fused_text = condensed_text(reader, selection)
        yield Core(model.fuse(hidden, fused_text), text, classes, run.settings)


def plain_steps(problems: Lassos, steps: int) -> Tensor:
    """Return [K, s] z after proximal gradient from 0 with the step size of `solve_lassos`."""
    rate = 1 / problems.gram.abs().sum(1).amax(0).clamp(min=1e-12)
    z = torch.zeros_like(problems.target)
    for _ in range(steps):
        moved = z + rate * (problems.target - (problems.gram * z).sum(1))
        z = moved.sign() * (moved.abs() - rate * problems.penalty).clamp(min=0)
    return z.T


def figures(core: Core, alpha: float, beta: float, *, plain: bool) -> list[float]:
    """Return the numbers of one line for one core."""
    settings = replace(core.settings, alpha=alpha, beta=beta)
    began = time.process_time()
    x = core.fused if plain else functional.normalize(core.fused, dim=1)
    support, pairs = find_candidates(x, core.evidence, core.classes, settings)
    everyone = torch.arange(len(x))
    problems = column_problems(x, core.evidence, support, everyone, settings, pairs)
    if plain:
        z, steps = plain_steps(problems, PLAIN_STEPS), PLAIN_STEPS
    else:
        z, steps = solve_lassos(problems, settings.inner_iterations, settings.inner_tolerance)
    edges = edges_of(support, z, settings)
    seconds = time.process_time() - began
    exact = column_problems(x.double(), core.evidence.double(), support, everyone, settings)
    prior = (beta + 1 - 2 * alpha * exact.penalty) * (support.T >= 0)  # S
    mean = prior.sum() / (support >= 0).sum()
    scaled = exact.penalty * 2 * alpha  # beta + 1 - S
    changed = (scaled, scaled + prior - mean, torch.full_like(prior, beta), scaled + beta)
    penalties = [penalty / (2 * alpha) for penalty in changed]
    minima = [solve_lassos(replace(exact, penalty=w), 20_000, 1e-6)[0] for w in penalties]
    least, *others = (edges_of(support, minimum, settings) for minimum in minima)
    value, best = (float(exact.gap(found.T.double())[0].sum()) for found in (z, minima[0]))
    filled = float((z != 0).sum() / (support >= 0).sum())
    shares = [100 * (1 - jaccard(least, other)) for other in others]
    line = [100 * filled, len(edges) / len(x), steps, 100 * (value / best - 1)]
    return [*line, jaccard(edges, least), *shares, 1e3 * seconds]


def edges_of(support: Tensor, z: Tensor, settings: DanceConfig) -> set[tuple[int, int]]:
    """Return the edges that eq:adjacency makes of coefficients."""
    rows, cols, _ = synthesise_adjacency(Coefficients(support, z), settings.neighbours)
    return set(zip(rows.tolist(), cols.tolist(), strict=True))


def jaccard(one: set[tuple[int, int]], other: set[tuple[int, int]]) -> float:
    """Return the share of common edges; 1 if there are none at all."""
    return len(one & other) / len(one | other) if one | other else 1.0


def table(found: Sequence[Core], alphas: Sequence[float], betas: Sequence[float]) -> list[str]:
    """Return the lines of the table in Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
    for plain in (True, False):
        for alpha in alphas:
            for beta in betas:
                each = torch.tensor([figures(core, alpha, beta, plain=plain) for core in found])
                numbers = [f"{value:.3g}" for value in each.mean(0).tolist()]
                head = ["plain" if plain else "unit", f"{alpha:g}", f"{beta:g}"]
                lines.append(f"| {' | '.join(head + numbers)} |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--alpha", nargs="+", type=float, default=[4.0, 8.0, 12.0])
    parser.add_argument("--beta", nargs="+", type=float, default=[3.0, 5.0, 10.0])
    parser.add_argument("--all-nodes", action="store_true", help="of each client, not its core")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [core for run in options.runs for core in cores(run, all_nodes=options.all_nodes)]
    print("\n".join(table(found, options.alpha, options.beta)))


if __name__ == "__main__":
    main()
