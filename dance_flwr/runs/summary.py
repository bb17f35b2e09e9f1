"""Summarise a run for `result.json`: totals, privacy, versions."""

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from dance_flwr import __version__
from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.privacy.dp import noise_multiplier, spent_epsilon
from dance_flwr.methods import get_spec
from dance_flwr.metrics import Counts, accuracy, balanced_accuracy, macro_f1
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.history import Round

_VERSIONS = ("flwr", "torch", "torch-geometric", "sentence-transformers", "entmax", "scikit-learn")


def client_rows(
    clients: Mapping[int | None, Mapping[str, Counts]], nodes: Mapping[int | None, int]
) -> list[dict[str, Any]]:
    """Return the nodes, accuracies and hits of every client; none where only sums are known.

    The accuracy on a split without nodes is None.
    """
    return [
        {
            "client": number,
            **({"nodes": nodes[number]} if number in nodes else {}),
            "test_nodes": counts["test"].total,
            "val_nodes": counts["val"].total,
            "test_accuracy": accuracy(counts["test"].correct["deployed"], counts["test"].total),
            "val_accuracy": accuracy(counts["val"].correct["deployed"], counts["val"].total),
            "correct_by_view": {split: dict(counts[split].correct) for split in ("val", "test")},
        }
        # Under masks the one entry is the sum, of which no client has a row.
        for number, counts in clients.items()
        if number is not None
    ]


def test_scores(test: Counts, rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the scores of the test nodes; that of the worst client is None without rows."""
    tested = [row["test_accuracy"] for row in rows if row["test_nodes"]]
    return {
        "test_accuracy": accuracy(test.correct["deployed"], test.total),
        "test_macro_f1": macro_f1(test.true_positives, test.predicted, test.actual),
        "test_balanced_accuracy": balanced_accuracy(test.true_positives, test.actual),
        "test_worst_client": min(tested, default=None),
    }


def class_counts(counts: Counts) -> dict[str, list[int]]:
    """Return, by class, the nodes of a split, those predicted as it, and those of them that are."""
    return {
        "nodes": list(counts.actual),
        "predicted": list(counts.predicted),
        "correct": list(counts.true_positives),
    }


def privacy_facts(config: RunConfig, rounds: int, repeats: int) -> dict[str, Any]:
    """Return the privacy settings and the spent epsilon, which is void for seeded noise."""
    settings = config.privacy
    facts: dict[str, Any] = {"secure_aggregation": settings.secure_aggregation, "dp": settings.dp}
    if settings.dp != "none":
        facts |= {
            # What the completed rounds spent, with repeated ones, and not the budget.
            "epsilon": spent_epsilon(config, rounds, repeats),
            "delta": settings.delta,
            "seeded": settings.seeded,
        }
        facts |= {
            "noise_multiplier": noise_multiplier(config),
            "clipping_norm": settings.clipping_norm,
        }
    return facts


@cache
def versions() -> dict[str, str]:
    """Return the versions of the app, of Python and of the main libraries."""
    app = {"dance-flwr": __version__, "python": platform.python_version()}
    return app | {name: version(name) for name in _VERSIONS}


def total_counts(counts: Sequence[Counts]) -> Counts:
    """Return the sum of the counts of clients."""

    def add(rows: Sequence[Sequence[int]]) -> list[int]:
        return [sum(column) for column in zip(*rows, strict=True)]

    return Counts(
        correct={
            view: sum(c.correct[view] for c in counts)
            for view in counts[0].correct
            # A view that one client did not count has no sum over the same nodes as the others.
            if all(view in c.correct for c in counts)
        },
        total=sum(c.total for c in counts),
        true_positives=add([c.true_positives for c in counts]),
        predicted=add([c.predicted for c in counts]),
        actual=add([c.actual for c in counts]),
        calibration=add([c.calibration for c in counts]),
    )


def calibration_of(clients: Mapping[int | None, Mapping[str, Counts]]) -> Calibration:
    """Return the temperature that the validation nodes of all clients choose together."""
    val, test = (
        total_counts([counts[split] for counts in clients.values()]) for split in ("val", "test")
    )
    return Calibration.fit(val.calibration, val.total, test.calibration, test.total)


def view_shares(config: RunConfig) -> dict[str, float]:
    """Return the share of each view in the deployed prediction."""
    views = get_spec(config.method).deployed_views(config)
    return {view: 1 / len(views) for view in views}


def sum_by_key(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of dictionaries, key by key."""
    total: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            total[key] = total.get(key, 0.0) + value
    return total


def per_condensed_node(history: Sequence[Round]) -> dict[str, float]:
    """Return mean neighbours, chunks and tokens per condensed node over all refreshes.

    Without condensed nodes, "supervised_per_round" is the mean number of labelled nodes that a
    round supervised at all clients, of a method that reports it.
    """
    total = sum_by_key([row.counts for row in history])
    nodes = total.pop("condensed-nodes", 0.0)
    supervised = total.get("evidence-supervised", 0.0)
    # A method without a core reports what it supervised, so that costs can be compared.
    if not nodes and supervised:
        return {"nodes_per_round": 0.0, "supervised_per_round": supervised / len(history)}
    means = (
        {key.removeprefix("evidence-"): value / nodes for key, value in total.items()}
        if nodes
        else {}
    )
    rounds = sum(1 for row in history if row.counts.get("condensed-nodes"))
    return {"nodes_per_round": nodes / rounds if rounds else 0.0, **means}
