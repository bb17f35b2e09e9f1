"""Faithfulness of evidence packs on test nodes: deletion, insertion, sufficiency, compactness.

The predictor is the one that a run deploys, `dance.algorithm.predict`, before any `smoothing`.
Nothing is selected by these numbers: test labels are read at the very end, to report accuracies.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.reading_probe import with_choice
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.data.graphs.graph import TEST
from dance_flwr.errors import UserError
from dance_flwr.evidence.explain import Explainer
from dance_flwr.federation.client.client import open_client
from dance_flwr.runs.result import load_model, read_result
from dance_flwr.seeding import derive, generator
from dance_flwr_studies.engine.cells import Cell, Experiment, Request
from dance_flwr_studies.metrics.faithfulness import EXPLAINER, Outcomes, node_values, outcomes
from dance_flwr_studies.protocols.faithfulness.estimates import pack
from dance_flwr_studies.protocols.faithfulness.gnn_explainer import masked_chunks
from dance_flwr_studies.protocols.faithfulness.tables import render, verdict_of
from dance_flwr_studies.protocols.variants import point_cells

NODES = 300  # per run; more nodes narrow the intervals, at half a core second each
DRAWS = 3  # of the random controls


def faithfulness(
    run_folder: Path,
    config: RunConfig,
    partition_folder: Path,
    *,
    nodes: int = NODES,
    draws: int = DRAWS,
) -> dict[str, Any]:
    """Measure the packs of at most `nodes` test nodes of a finished run, drawn over all clients.

    The values of the nodes, which a report resamples, are rounded to 1 / 100, as text, and without
    numbers of nodes.
    """
    _check([config])
    result = read_result(run_folder)
    state = load_model(run_folder, result["model_fingerprint"])
    config = with_choice(config, result["reading"])
    clients = [
        open_client(partition_folder / f"client-{client}", config)
        for client in range(config.clients)
    ]
    all_data = [opened.data for opened in clients]
    results = []
    for client, chosen in _sample(all_data, nodes, config.seed).items():
        clients[client].load(state)
        model = clients[client].model
        assert isinstance(model, DanceModel)
        explainer = Explainer(model, all_data[client], DanceConfig.of(config))
        # A stream for each client: its controls do not depend on the nodes of others.
        draw = generator(config.seed, "faithfulness", client=client)
        masks = {EXPLAINER: partial(masked_chunks, explainer, config.seed)}
        results.append((all_data[client], outcomes(explainer, chosen, draws, draw, masks)))
    parts = [
        node_values(seen, data.labels[torch.as_tensor(seen.nodes, device=data.device)])
        for data, seen in results
    ]
    return {
        "nodes": sum(len(seen.nodes) for _, seen in results),
        "draws": draws,
        "budgets": [0, *results[0][1].budgets],
        "views": DanceConfig.of(config).views,
        "smoothing": config.smoothing,
        "largest_gap_to_plain_rerun": max(seen.gap for _, seen in results),
        "compactness": _compactness(results),
        "node_values": pack({name: np.concatenate([p[name] for p in parts]) for name in parts[0]}),
    }


def _check(configs: Sequence[RunConfig]) -> None:
    for config in configs:
        if config.method != "dance":
            raise UserError(
                f"faithfulness: expected method 'dance', found {config.method!r}, which selects no "
                "evidence"
            )


def _sample(all_data: list[ClientData], max_nodes: int, seed: int) -> dict[int, torch.Tensor]:
    test = [torch.nonzero((data.split == TEST) & (data.labels >= 0)).flatten() for data in all_data]
    owner = np.repeat(np.arange(len(all_data)), [nodes.numel() for nodes in test])
    rng = np.random.default_rng(derive(seed, "faithfulness-nodes"))
    drawn = np.zeros(len(owner), np.bool_)
    # Over all clients at once: each has the share of the sample that it has of the test nodes.
    drawn[rng.permutation(len(owner))[:max_nodes]] = True
    picked = {
        client: nodes[torch.as_tensor(drawn[owner == client])] for client, nodes in enumerate(test)
    }
    picked = {client: nodes for client, nodes in picked.items() if nodes.numel()}
    if not picked:
        raise UserError("faithfulness: expected test nodes, found none")
    return picked


def _compactness(results: list[tuple[ClientData, Outcomes]]) -> dict[str, Any]:
    """Return means per node: neighbours beyond itself, chunks and tokens of pack and pool."""
    counts = [seen.packs.counts(data) for data, seen in results]
    nodes = sum(row["condensed-nodes"] for row in counts)
    means = {
        name: sum(row[f"evidence-{name}"] for row in counts) / nodes
        for name in ("neighbours", "chunks", "tokens")
    }
    means["pool-chunks"] = np.concatenate([seen.pool_chunks for _, seen in results]).mean()
    means["pool-tokens"] = np.concatenate([seen.pool_tokens for _, seen in results]).mean()
    return {name: round(float(value), 4) for name, value in means.items()}


def cells(request: Request) -> list[Cell]:
    """Return a run with its analysis per data set, method and seed, as in the main table."""
    made = point_cells(request, [({}, {})], request.methods)
    _check([cell.config for cell in made])
    return [replace(cell, analysis=f"{__name__}:faithfulness") for cell in made]


EXPERIMENT = Experiment(
    title="Faithfulness of evidence packs",
    question=(
        "Keeping only the selected chunks largely preserves the prediction, and removing them "
        "hurts more than removing as many random chunks (Sec. 5.2 and App. on Cora)."
    ),
    cells=cells,
    render=render,
    verdict=verdict_of,
    metrics={},
    methods=("dance",),
)
