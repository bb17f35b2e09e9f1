"""What exported rows keep of a run's result.json: scalars, and means over rounds and clients."""

from collections.abc import Mapping
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
    "nodes_per_client",
    "encoder_tokens",
    "per_condensed_node",
    "seconds_total",
    "seconds_per_round",
    "devices",
    "model_fingerprint",
    "provenance",
    "versions",
)


def compact(result: Mapping[str, Any], facts: Mapping[str, Any], curve: bool) -> dict[str, Any]:
    """Return what tables need of a result; the history only as means."""
    history = result["history"]
    steady = history[WARM_ROUNDS:]
    # Mean seconds per round: of each phase summed over clients, and of the whole round.
    phases = (
        {name: mean(row["seconds"][name] for row in steady) for name in steady[0]["seconds"]}
        if steady
        else {}
    )
    if steady:
        phases["total"] = mean(row["train_seconds"] for row in steady)
    content = {
        # Scores keep all digits, for tables that others compute with.
        name: result[name] if name.startswith(("test_", "val_")) else _rounded(result[name])
        for name in _RESULT_KEYS
        if name in result
    }
    uploads = [value for row in history for value in row["bytes_up"].values()]
    content |= {
        "rounds": len(history),
        "bytes_up": _rounded(mean(uploads or [0.0])),
        # Of the rounds after the first five; empty for shorter runs.
        "steady_seconds": _rounded(phases),
        "tokens": {
            name: {key: value for key, value in ledger.items() if key != "clients"}
            for name, ledger in result["tokens"].items()
        },
        "facts": dict(facts),
    }
    if curve:
        values = [row["val_accuracy"] for row in history]
        content[CURVE] = [None if value is None else round(value, 4) for value in values]
    return content


def _rounded(value: Any) -> Any:
    """Round timings and means to 6 significant digits; no table shows more."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
