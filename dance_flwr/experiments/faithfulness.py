"""Faithfulness of evidence packs on test nodes: deletion, insertion, sufficiency, compactness.

The predictor is the one that a run deploys, `dance.algorithm.predict`, before any `smoothing`.
Nothing is selected by these numbers: test labels are read at the very end, to report accuracies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.faithfulness import CONTROLS, EVIDENCE, Outcomes, aopc, drops, flips, outcomes
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.data.site import Site
from dance_flwr.disk import write_npz
from dance_flwr.errors import UserError
from dance_flwr.experiments.cells import Cell, Experiment, Request
from dance_flwr.experiments.faithfulness_report import render
from dance_flwr.experiments.variants import point_cells
from dance_flwr.federation.client.client import shape_of
from dance_flwr.federation.client.device import pick_device
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.metrics import accuracy, count
from dance_flwr.runs.reader import load_model
from dance_flwr.seeding import derive, generator

NODES = 300  # per run; more nodes narrow the intervals, at half a core second each
DRAWS = 3  # of the random controls
_RESAMPLES = 2000
NODE_FILE = "faithfulness-nodes.npz"

Values = dict[str, NDArray[np.float64]]


def analyse(
    run_folder: Path,
    config: RunConfig,
    partition_folder: Path,
    *,
    nodes: int = NODES,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """Measure the packs of at most `nodes` test nodes of a finished run, drawn over all clients.

    The values of each node go to `faithfulness-nodes.npz` in the run's folder. The returned dict
    holds their means with 95 % intervals as [mean, low, high], from a percentile bootstrap over
    nodes. Only a simulation may see both.

    Raises
    ------
    UserError : the run's method selects no evidence
    """
    _check([config.method])
    state = load_model(run_folder)
    torch.set_num_threads(config.torch_threads)
    sites = [
        Site(
            partition_folder / f"client-{client}",
            pick_device(config),
            config.split_mode == "inductive",
        )
        for client in range(config.clients)
    ]
    results = []
    for client, chosen in _sample(sites, nodes, config.seed).items():
        site, model = sites[client], _model(sites[client], config, state)
        draw = generator(config.seed, "faithfulness", client=client)
        results.append((site, outcomes(model, site, DanceConfig.of(config), chosen, draws, draw)))
    values = _concatenate([node_values(seen) for _, seen in results])
    where = {
        "client": np.concatenate(
            [np.full(len(seen.nodes), site.card.client) for site, seen in results]
        ),
        "node": np.concatenate([seen.nodes for _, seen in results]),
    }
    write_npz(run_folder / NODE_FILE, where | values)
    return {
        "nodes": len(where["node"]),
        "draws": draws,
        "budgets": [0, *results[0][1].budgets],
        "views": DanceConfig.of(config).views,
        "smoothing": config.smoothing,
        "model_fingerprint": model_fingerprint(state),
        "largest_gap_to_plain_rerun": max(seen.gap for _, seen in results),
        "compactness": _compactness(results),
        "accuracy": _accuracies(results),
        **_intervals(values, derive(config.seed, "faithfulness-bootstrap")),
    }


def _check(methods: Sequence[str]) -> None:
    others = [method for method in methods if method != "dance"]
    if others:
        raise UserError(
            f"faithfulness: expected method 'dance', found {others[0]!r}, which selects no evidence"
        )


def _model(site: Site, config: RunConfig, state: Mapping[str, torch.Tensor]) -> DanceModel:
    model = (
        get_spec(config.method)
        .make_client()
        .build(shape_of(site.text_dim, len(site.card.class_names), config), config)
    )
    model.load_state_dict(state)
    assert isinstance(model, DanceModel)
    return model.to(site.device)


def _sample(sites: list[Site], most: int, seed: int) -> dict[int, torch.Tensor]:
    """Return the drawn test nodes of every client that has some, ascending."""
    test = [torch.nonzero(site.split == TEST).flatten() for site in sites]
    owner = np.repeat(np.arange(len(sites)), [nodes.numel() for nodes in test])
    rng = np.random.default_rng(derive(seed, "faithfulness-nodes"))
    drawn = np.zeros(len(owner), np.bool_)
    drawn[rng.permutation(len(owner))[:most]] = True
    picked = {
        client: nodes[torch.as_tensor(drawn[owner == client])] for client, nodes in enumerate(test)
    }
    picked = {client: nodes for client, nodes in picked.items() if nodes.numel()}
    if not picked:
        raise UserError("faithfulness: expected test nodes, found none")
    return picked


def node_values(seen: Outcomes) -> Values:
    """Return the values of each node, [m] or [m, S + 1] float64, by "source/measure".

    `comprehensiveness` and `sufficiency` are the drops in p(y^) without the whole pack and with
    nothing else in the pool, `sufficiency-alone` with no other text in the client at all; `aopc-*`
    their areas; `flipped-*` whether the class changes; `deletion` and `insertion` are p(y^) by
    number of chunks. Random sources are means over draws.
    """
    bare, zero = drops(seen.full, seen.bare[None]), torch.zeros_like(seen.full[:, 0])
    top = seen.full.max(dim=1).values
    values: dict[str, torch.Tensor] = {
        "predicted/confidence": top,
        "none/sufficiency": bare,
        "none/sufficiency-alone": drops(seen.full, seen.textless[None]),
        "none/flipped-kept": flips(seen.full, seen.bare[None]),
        "none/flipped-alone": flips(seen.full, seen.textless[None]),
    }
    for name in (EVIDENCE, *CONTROLS):
        without, only = drops(seen.full, seen.removed[name]), drops(seen.full, seen.kept[name])
        measured = {
            "comprehensiveness": without[-1],
            "sufficiency": only[-1],
            "sufficiency-alone": drops(seen.full, seen.alone[name]),
            "aopc-comprehensiveness": aopc(zero, without),
            "aopc-sufficiency": aopc(bare, only),
            "flipped-removed": flips(seen.full, seen.removed[name][:, -1]),
            "flipped-kept": flips(seen.full, seen.kept[name][:, -1]),
            "flipped-alone": flips(seen.full, seen.alone[name]),
            "deletion": (top - torch.cat([zero[None], without])).T,
            "insertion": (top - torch.cat([bare[None], only])).T,
        }
        values |= {f"{name}/{measure}": value for measure, value in measured.items()}
    return {name: value.double().cpu().numpy() for name, value in values.items()}


def _concatenate(parts: list[Values]) -> Values:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _intervals(values: Values, seed: int) -> dict[str, Any]:
    """Return "means" by source and measure, and node-wise "differences", evidence minus control."""
    means: dict[str, dict[str, Any]] = {}
    differences: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        source, measure = name.split("/")
        means.setdefault(source, {})[measure] = bootstrap(value, seed)
        if source in CONTROLS and value.ndim == 1:
            paired = values[f"{EVIDENCE}/{measure}"] - value
            differences.setdefault(source, {})[measure] = bootstrap(paired, seed)
    return {"means": means, "differences": differences}


def bootstrap(values: NDArray[np.float64], seed: int) -> list[Any]:
    """Return [mean, low, high]: the 2.5 and 97.5 percentiles of the mean over resampled rows.

    Three numbers for [n] values, a list of three numbers per column for [n, s]; 5 digits. Source:
    Efron and Tibshirani 1993, ch. 13.
    """
    size = len(values)
    weights = (
        np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), _RESAMPLES) / size
    )
    low, high = np.percentile(weights @ values, (2.5, 97.5), axis=0)
    return np.stack([values.mean(0), low, high], axis=-1).round(5).tolist()  # type: ignore[no-any-return]


def _compactness(results: list[tuple[Site, Outcomes]]) -> dict[str, float]:
    """Return means per node: neighbours beyond itself, chunks and tokens of pack and pool."""
    counts = [seen.packs.counts(site) for site, seen in results]
    nodes = sum(row["condensed-nodes"] for row in counts)
    means = {
        name: sum(row[f"evidence-{name}"] for row in counts) / nodes
        for name in ("neighbours", "chunks", "tokens")
    }
    pool = {
        "pool-chunks": float(np.concatenate([seen.pool_chunks for _, seen in results]).mean()),
        "pool-tokens": float(np.concatenate([seen.pool_tokens for _, seen in results]).mean()),
    }
    return {name: round(value, 4) for name, value in (means | pool).items()}


def _accuracies(results: list[tuple[Site, Outcomes]]) -> dict[str, Any]:
    """Return accuracies in [0, 1]: "full", "bare", "textless", and those of each source.

    Each source has "removed" and "kept", lists over k, and "alone".
    """
    hits: dict[str, int] = {}
    total = 0
    for site, seen in results:
        nodes = torch.as_tensor(seen.nodes, device=site.device)
        counts = count(_views(seen), site.labels[nodes])
        total += counts.total
        hits = {name: hits.get(name, 0) + number for name, number in counts.correct.items()}

    def score(source: str, what: str) -> list[float]:
        names = [name for name in hits if name.startswith(f"{source}/{what}/")]
        steps = sorted({int(name.split("/")[2]) for name in names})
        shares = [
            [accuracy(hits[n], total) for n in names if int(n.split("/")[2]) == step]
            for step in steps
        ]
        return [round(float(np.mean(share)), 5) for share in shares]

    result: dict[str, Any] = {"full": round(accuracy(hits["deployed"], total), 5)}
    result |= {name: round(accuracy(hits[name], total), 5) for name in ("bare", "textless")}
    for source in (EVIDENCE, *CONTROLS):
        result[source] = {what: score(source, what) for what in ("removed", "kept")}
        result[source]["alone"] = score(source, "alone")[0]
    return result


def _views(seen: Outcomes) -> dict[str, torch.Tensor]:
    views = {"deployed": seen.full, "bare": seen.bare, "textless": seen.textless}
    for what, by_source in (("removed", seen.removed), ("kept", seen.kept)):
        for source, draws in by_source.items():
            views |= {
                f"{source}/{what}/{step}/{i}": probs
                for i, draw in enumerate(draws)
                for step, probs in enumerate(draw)
            }
    for source, draws in seen.alone.items():
        views |= {f"{source}/alone/0/{i}": probs for i, probs in enumerate(draws)}
    return views


def cells(request: Request) -> list[Cell]:
    """Return a run with its analysis per data set, method and seed; the main table shares the runs.

    Raises
    ------
    UserError : a requested method selects no evidence
    """
    _check(request.methods)
    return [
        replace(cell, analysis="faithfulness")
        for cell in point_cells(request, [({}, {})], request.methods)
    ]


EXPERIMENT = Experiment(
    name="faithfulness",
    title="Faithfulness of evidence packs",
    question=(
        "Keeping only the selected chunks largely preserves the prediction, and removing them "
        "hurts more than removing as many random chunks (Sec. 5.2 and App. on Cora)."
    ),
    cells=cells,
    render=render,
    methods=("dance",),
)
