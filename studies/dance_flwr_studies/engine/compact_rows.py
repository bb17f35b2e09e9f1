"""What exported rows keep of a run's result.json: scalars, means over the rounds, and clients."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

CURVE = "val_accuracy_by_round"  # kept where an experiment draws it
WARM_ROUNDS = 5  # omitted from timings: first use of memory, caches and kernels
_RESULT_KEYS = (
    "test_accuracy",
    "val_accuracy",
    "test_macro_f1",
    "test_balanced_accuracy",
    "test_worst_client",
    "test_calibration_error",
    "best_round",
    "test_accuracy_by_view",
    "nodes_per_client",
    "encoder_tokens",
    "per_condensed_node",
    "seconds_total",
    "seconds_per_round",
    "seconds_by_phase",
    "seconds_personal",
    "bytes_personal",
    "devices",
    "model_fingerprint",
    "provenance",
    "versions",
)


def compact(result: Mapping[str, Any], facts: Mapping[str, Any], curve: bool) -> dict[str, Any]:
    """Return what tables need of a result; the history only as means."""
    history = result["history"]
    steady = history[WARM_ROUNDS:]
    clients = result["clients"]
    content = {
        # Scores keep all digits, for tables that others compute with.
        name: result[name] if name.startswith(("test_", "val_")) else _rounded(result[name])
        for name in _RESULT_KEYS
        if name in result
    }
    content |= {
        "clients": {
            "test_nodes": [client["test_nodes"] for client in clients],
            "test_accuracy": [client["test_accuracy"] for client in clients],
            "val_accuracy": [client["val_accuracy"] for client in clients],
        },
        "rounds": len(history),
        "bytes_up": _rounded(mean(_of_clients(history, "bytes_up"))),
        "bytes_down": _rounded(mean(_of_clients(history, "bytes_down"))),
        "counts_per_round": _rounded(_mean_counts(history)),
        # Of the rounds after the first five; empty for shorter runs.
        "steady_seconds": _rounded(_phases(steady)) if steady else {},
        "facts": dict(facts),
    }
    if "tokens" in result:  # an older run has none
        content["tokens"] = {name: _columns(ledger) for name, ledger in result["tokens"].items()}
    if curve:
        values = [row["val_accuracy"] for row in history]
        content[CURVE] = [None if value is None else round(value, 4) for value in values]
    return content


def _columns(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ledger with a list by client under each name; no lists where all counts are 0."""
    clients = ledger["clients"]
    names = [name for name in (clients[0] if clients else ()) if name != "client"]
    columns = {name: [client[name] for client in clients] for name in names}
    used = {name: column for name, column in columns.items() if any(column)}
    return {**ledger, "clients": used}


def _phases(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return mean seconds per round: of each phase summed over clients, and of the whole round."""
    phases = {name: mean(row["seconds"][name] for row in history) for name in history[0]["seconds"]}
    return phases | {"total": mean(row["train_seconds"] for row in history)}


def _mean_counts(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in history for name in row["counts"])
    return {n: float(mean(r["counts"][n] for r in history if n in r["counts"])) for n in names}


def _of_clients(history: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [value for row in history for value in row[name].values()] or [0.0]


def _rounded(value: Any) -> Any:
    """Round timings and means to 6 significant digits; no table shows more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
