"""Read the result and the model of a run."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from dance_flwr.config.paths import MODEL, RESULT
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import model_fingerprint

if TYPE_CHECKING:  # reading the status of a run needs no torch
    from torch import Tensor

# What every reader of a result uses; other entries may be absent in earlier versions.
_NEEDED = ("calibration", "model_fingerprint", "method", "config")
# What a program asks of a result; the file has the rest.
_SHORT = (
    *("run", "method", "seed", "test_accuracy", "test_macro_f1", "test_balanced_accuracy"),
    *("test_worst_client", "val_accuracy", "best_round", "test_nodes", "val_nodes"),
    *("seconds_total", "devices"),
)
_AGAIN = "copy the run's folder again, or run again"


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of `result.json`."""
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"expected {RESULT} of a finished run, found none in {folder}")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: expected the result of a run, found {error}; {_AGAIN}") from None
    if not isinstance(result, dict) or (missing := [key for key in _NEEDED if key not in result]):
        lack = f"none of {missing[0]!r}" if isinstance(result, dict) else type(result).__name__
        raise UserError(f"{path}: expected the result of a run, found {lack}; {_AGAIN}")
    return result


def short_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores, the clients and the costs of a result, without what its rounds did."""
    rows = ({k: row[k] for k in row if k != "correct_by_view"} for row in result["clients"])
    tokens = result["tokens"].items()
    return {
        **{name: result.get(name) for name in _SHORT},
        "rounds": len(result["history"]),
        # Of the whole round, as everywhere; in the file it is the mean of its training.
        "seconds_per_round": result["seconds_total"] / max(len(result["history"]), 1),
        "nodes": sum(result["nodes_per_client"]),
        "clients": list(rows),
        **{
            way: sum(sum(row[way].values()) for row in result["history"])
            for way in ("bytes_down", "bytes_up")
        },
        "tokens": {of: {k: n for k, n in row.items() if k != "clients"} for of, row in tokens},
        "data": result["config"]["data"],
    }


def config_of(result: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a finished run, with the reading that its clients chose."""
    from dance_flwr.client_data.reading_probe import with_choice

    return with_choice(parse(result["config"]), result.get("reading", {}))


def validated(result: Mapping[str, Any]) -> bool:
    """Whether a round of a finished run was validated; if none was, its model is the last one."""
    return any(row["val_accuracy"] is not None for row in result["history"])


def withholds_counts(result: Mapping[str, Any]) -> bool:
    """Whether the clients of a run counted no validation or test node, as noise covers no count."""
    privacy = result["privacy"]
    return bool(privacy["dp"] != "none" and not privacy["seeded"])


def why_not_tested(result: Mapping[str, Any]) -> str:
    """Return why a finished run has no test accuracy."""
    if withholds_counts(result):
        return "clients count no test node under differential privacy"
    return "no client has test nodes"


def why_last_model(result: Mapping[str, Any]) -> str:
    """Return why a run of which no round was validated keeps its last model."""
    if withholds_counts(result):
        why = "clients count no validation under differential privacy"
    else:
        why = "no round was validated" if result["val_nodes"] else "no client has validation nodes"
    return f"{why}: the last model is kept"


def load_model(folder: Path, fingerprint: str = "") -> "dict[str, Tensor]":
    """Return the state dict of the best validation round of a run, or of the last round.

    Parameters
    ----------
    fingerprint : of the model, in the run's result; "" = not compared
    """
    from safetensors.torch import load_file

    path = folder / MODEL
    try:
        state = load_file(path)
        # Why (decision 20): the model is that of the record, or it is refused.
        if (found := model_fingerprint(state)) == (fingerprint or found):
            return state
    except (SafetensorError, OSError) as error:
        found = " ".join(str(error).split())
    raise UserError(
        f"{path}: expected model {fingerprint}, found {found}; it was altered or damaged: {_AGAIN}"
    )


def closing_lines(folder: Path) -> Iterator[str]:
    """Yield what the log of a ServerApp ends with: scores, folder, and what to do next."""
    result = read_result(folder)
    if result["test_accuracy"] is None:
        yield "test accuracy: the server has no counts of test nodes"
    else:
        yield (
            f"test accuracy {result['test_accuracy']:.4f} of {result['test_nodes']:,} nodes, "
            f"macro-F1 {result['test_macro_f1']:.4f}, model of round {result['best_round']}"
        )
    yield f"result in {folder}"
    yield f"next: dance-flwr report {shlex.quote(str(folder))}"
