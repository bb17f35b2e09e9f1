"""The history, the result and the model of a run, as its folder holds them."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from dance_flwr.config.paths import HISTORY, MODEL, RESULT
from dance_flwr.config.tree import RunConfig, parse_stored
from dance_flwr.disk import json_text, write_json
from dance_flwr.errors import ConfigError, UserError, reason_of
from dance_flwr.fingerprint import commitment, model_fingerprint

if TYPE_CHECKING:  # reading the status of a run needs no torch
    from torch import Tensor

SCHEMA = 2  # from 2 on, a result has a digest of its other entries
_DIGEST = "sha256"
# Entries that tell the result of a run from other files of JSON.
_NEEDED = ("calibration", "model_fingerprint", "method", "config")
# What `report --json` prints of a result.
_SHORT = (
    *("run", "method", "seed", "test_accuracy", "test_macro_f1", "test_balanced_accuracy"),
    *("test_worst_client", "val_accuracy", "best_round", "test_nodes", "val_nodes"),
    *("seconds_total", "devices"),
)
_AGAIN = "copy the run's folder again, or run again"


@dataclass
class Round:
    """One row of a run's history.

    Attributes
    ----------
    loss : None if nothing was trained or the loss is not finite
    val_accuracy : of the deployed prediction, None in rounds without validation; views : by view
    seconds : by phase, summed over clients, and of the method's own server side, if any
    round_seconds : wall clock, training and validation
    counts : of the refresh in this round, summed over clients; counts of the server side
    bytes_down, bytes_up : model bytes per client
    epsilon : of training nodes, spent up to this round; None without differential privacy
    absent : client -> why it did not take part: silent, not connected, failed, or its upload was
        invalid
    skipped : why the round left the model as it was; "" if it did not
    """

    round: int
    loss: float | None = None
    val_accuracy: float | None = None
    val_macro_f1: float | None = None
    views: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    train_seconds: float = 0.0
    round_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)
    bytes_up: dict[int, int] = field(default_factory=dict)
    epsilon: float | None = None
    absent: dict[int, str] = field(default_factory=dict)
    skipped: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Round":
        """Return the round of a JSON object, where the numbers of clients are strings."""
        by_client = {
            name: {int(client): value for client, value in row.get(name, {}).items()}
            for name in ("bytes_down", "bytes_up", "absent")
        }
        return cls(**{**row, **by_client})

    @property
    def answered(self) -> list[int]:
        """The clients that were asked in this round and did not fail."""
        return [
            client for client, size in self.bytes_down.items() if size and client not in self.absent
        ]


def whole_lines(path: Path) -> list[str]:
    """Return the complete lines of a file; none if the file does not exist.

    A last line without a newline is left out, as the server may still be writing it.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    # Bytes: a line that is being written may end inside a character.
    return text[: text.rfind(b"\n") + 1].decode("utf-8").splitlines()


def read_history(folder: Path) -> list[Round]:
    """Return the completed rounds of the run in `folder`, also while it runs.

    Raises
    ------
    UserError : a line is not a round
    """
    path = folder / HISTORY
    try:
        return [Round.of(json.loads(line)) for line in whole_lines(path)]
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected a JSON object per line, found {reason_of(error)}; the file was "
            "altered"
        ) from None


def sum_by_key(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of dictionaries, key by key."""
    total: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            total[key] = total.get(key, 0.0) + value
    return total


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write `result.json` with a digest of its content."""
    content = json.loads(json_text(result))  # keys and numbers as a reader finds them
    write_json(folder / RESULT, content | {_DIGEST: commitment(content)})


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of `result.json`, compared with its digest.

    Raises
    ------
    UserError : there is none, or it was damaged
    """
    path = folder / RESULT
    if not path.is_file():
        raise UserError(
            f"{folder}: expected {RESULT} of a finished run, found none; name the `out` of one, or "
            f"see with `dance-flwr status {shlex.quote(str(folder))}` how far this one came"
        )
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: expected the result of a run, found {error}; {_AGAIN}") from None
    if not isinstance(result, dict) or (missing := [key for key in _NEEDED if key not in result]):
        lack = f"none of {missing[0]!r}" if isinstance(result, dict) else type(result).__name__
        raise UserError(f"{path}: expected the result of a run, found {lack}; {_AGAIN}")
    digest = result.pop(_DIGEST, None)
    if digest != commitment(result) if digest else result.get("schema") == SCHEMA:
        raise UserError(
            f"{path}: expected the result that the run wrote, found another; it was altered or "
            f"damaged: {_AGAIN}"
        )
    return result


def short_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores, the clients and the costs of a result, without its single rounds."""
    rounds = result["history"]
    short = {name: result.get(name) for name in _SHORT}
    short |= {
        "rounds": len(rounds),
        # Of the whole round, as everywhere; in the file it is the mean of its training.
        "seconds_per_round": result["seconds_total"] / max(len(rounds), 1),
        "nodes": sum(result["nodes_per_client"]),
        "clients": [
            {name: value for name, value in row.items() if name != "correct_by_view"}
            for row in result["clients"]
        ],
    }
    short |= {
        way: sum(sum(row[way].values()) for row in rounds) for way in ("bytes_down", "bytes_up")
    }
    short["tokens"] = {
        kind: {name: count for name, count in ledger.items() if name != "clients"}
        for kind, ledger in result["tokens"].items()
    }
    return short | {"data": result["config"]["data"]}


def config_of(result: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a finished run, with the settings that its clients voted for.

    Raises
    ------
    UserError : this version does not know a key or value
    """
    from dance_flwr.client_data.reading_probe import with_choice

    try:
        config = parse_stored(result["config"])
    except ConfigError as error:
        raise UserError(
            f"expected the configuration of a run of this version, found {error}; read the run "
            "with the version that wrote it"
        ) from None
    return with_choice(config, result.get("reading", {}))


def privacy_of(config: RunConfig, rounds: int, repeats: int) -> dict[str, Any]:
    """Return the privacy settings and what the completed rounds spent, as in `result.json`.

    Parameters
    ----------
    rounds : completed; repeats : rounds that were repeated with new noise
    """
    settings = config.privacy
    values: dict[str, Any] = {"secure_aggregation": settings.secure_aggregation, "dp": settings.dp}
    if settings.dp == "none":
        return values
    from dance_flwr.federation.privacy.dp import noise_multiplier, spent_epsilon

    return values | {
        "epsilon": spent_epsilon(config, rounds, repeats),  # void if the noise is seeded
        "delta": settings.delta,
        "seeded": settings.seeded,
        "noise_multiplier": noise_multiplier(config),
        "clipping_norm": settings.clipping_norm,
    }


def validated(result: Mapping[str, Any]) -> bool:
    """Whether a round of a finished run was validated; if none was, its model is the last one."""
    return any(row["val_accuracy"] is not None for row in result["history"])


def withholds_counts(result: Mapping[str, Any]) -> bool:
    """Whether clients sent no counts of validation and test nodes, which noise does not cover."""
    privacy = result["privacy"]
    return bool(privacy["dp"] != "none" and not privacy["seeded"])


def why_not_tested(result: Mapping[str, Any]) -> str:
    """Return why a finished run has no test accuracy."""
    if withholds_counts(result):
        return "clients count no test node under differential privacy"
    return "no client has test nodes"


def why_last_model(result: Mapping[str, Any]) -> str:
    """Return why a run without validations keeps its last model."""
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
    """Yield the last lines of a ServerApp's log: scores, folder, and what to do next."""
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
