"""The one result schema, written by the server of a run; tables are made only from such files."""

import json
import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from dance_flwr import __version__, events
from dance_flwr.config.paths import ERROR, HISTORY, MODEL, RESULT
from dance_flwr.config.tree import RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import code_fingerprint, model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.metrics import Counts, Training, accuracy, macro_f1
from dance_flwr.privacy.dp import noise_multiplier, spent
from dance_flwr.runs.checkpoint import Checkpoint, cut_back, forget
from dance_flwr.runs.history import Round
from dance_flwr.runs.lifecycle import round_ended

LOG = logging.getLogger("flwr")
SCHEMA = 1
_VERSIONS = ("flwr", "torch", "torch-geometric", "sentence-transformers", "entmax", "scikit-learn")


class Recorder:
    """Collects a run's history, keeps the model of the best validation round and writes
    `result.json`.

    Parameters
    ----------
    folder : where the files go; made here
    take_traffic : returns model bytes (down, up) per client since the last call
    on_round : called with each finished row, for progress
    point : where the run begins; None = at round 0. What this collects goes into it, round by round
    take_absent : returns the clients that did not take part since the last call, and why

    Raises
    ------
    ResumeError : the best model of a run that goes on is not in its folder
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        take_traffic: Callable[[], tuple[dict[int, int], dict[int, int]]],
        on_round: Callable[[dict[str, Any]], None] | None = None,
        point: Checkpoint | None = None,
        take_absent: Callable[[], dict[int, str]] = dict,
    ) -> None:
        self.point = point or Checkpoint("", config)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.config = config
        self.history = [Round.read(line) for line in self.point.history]
        self.best_round, self.best_state = self.point.best_round, self.point.best(folder)
        self._take_traffic, self._take_absent = take_traffic, take_absent
        self._on_round = on_round
        self._clear()
        self._round_start = time.perf_counter()
        self._start = self._round_start - self.point.seconds
        self._row = Round(self.point.round + 1)

    def _clear(self) -> None:
        """Remove what an earlier run left in the folder, or what this run left after the point
        where it goes on.
        """
        (self.folder / ERROR).unlink(missing_ok=True)
        if not self.point.arrays:
            for name in (RESULT, MODEL, HISTORY):
                (self.folder / name).unlink(missing_ok=True)
            return
        cut_back(self.point, self.folder)
        if self.best_round:
            self._save_model()

    def on_train(self, trained: Training) -> None:
        """Take what a round's training cost and produced."""
        self._row.loss = trained.loss
        self._row.seconds, self._row.counts = dict(trained.seconds), dict(trained.counts)
        self._row.train_seconds = time.perf_counter() - self._round_start

    def on_validation(self, val: Counts) -> None:
        """Take the summed validation counts of a round."""
        self._row.views = {view: accuracy(hits, val.total) for view, hits in val.correct.items()}
        self._row.val_accuracy = self._row.views["deployed"]
        self._row.val_macro_f1 = macro_f1(val.true_positives, val.predicted, val.actual)
        found, f1 = self._row.val_accuracy, self._row.val_macro_f1
        events.emit(
            "validation_ended",
            f"validation accuracy {found:.4f}",
            accuracy=found,
            macro_f1=f1,
            nodes=val.total,
        )

    def end_round(
        self, round_: int, state: Mapping[str, Tensor], save: Callable[[], None] = lambda: None
    ) -> None:
        """Close a round: keep the model if validation was never better (the earliest such round
        wins).

        Parameters
        ----------
        save : writes the checkpoint; a model that is better is written after it, see
            `dance_flwr.runs.checkpoint`
        """
        row = self._row
        row.round = round_
        row.round_seconds = time.perf_counter() - self._round_start
        row.bytes_down, row.bytes_up = self._take_traffic()
        row.absent = self._take_absent()
        row.epsilon = spent(self.config, round_, self.point.repeats)
        if row.epsilon is not None:
            LOG.info(
                "round %d: epsilon %.4g of %g is spent",
                round_,
                row.epsilon,
                self.config.privacy.epsilon,
            )
        best = max(
            (r.val_accuracy for r in self.history if r.val_accuracy is not None), default=-1.0
        )
        if row.val_accuracy is not None and row.val_accuracy > best:
            self.best_round, self.best_state = round_, dict(state)
        self.history.append(row)
        self.point.history.append(json.dumps(asdict(row)))
        with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(self.point.history[-1] + "\n")
        self.point.round, self.point.best_round = round_, self.best_round
        self.point.seconds = time.perf_counter() - self._start
        save()
        if self.best_round == round_:
            self._save_model()
        round_ended(row, self.point, self.folder)
        if self._on_round:
            self._on_round(asdict(row))
        self._row, self._round_start = Round(round_ + 1), time.perf_counter()

    def settle(self, state: Mapping[str, Tensor]) -> None:
        """Keep the last model where no round was validated: a privacy budget that ended early,
        after a stop.
        """
        if not self.best_state:
            self.best_round, self.best_state = self.point.round, dict(state)
            self._save_model()

    def _save_model(self) -> None:
        partial = self.folder / (MODEL + ".partial")
        tensors = {name: tensor.contiguous() for name, tensor in self.best_state.items()}
        save_file(tensors, partial, metadata={"round": str(self.best_round)})
        partial.replace(self.folder / MODEL)

    def write(
        self, clients: Mapping[int | None, Mapping[str, Counts]], context: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write `result.json` and return its content.

        Parameters
        ----------
        clients : by client the final counts of "val" and "test", read once, with the best model;
            None = of all clients, where only sums are known
        context : what the server knows beside: run name, data, clients, partition folder
        """
        test, val = (
            _total([counts[split] for counts in clients.values()]) for split in ("test", "val")
        )
        condensed = _per_condensed_node(self.history)
        result = {
            "schema": SCHEMA,
            "test_accuracy": accuracy(test.correct["deployed"], test.total),
            "val_accuracy": accuracy(val.correct["deployed"], val.total),
            "test_macro_f1": macro_f1(test.true_positives, test.predicted, test.actual),
            "best_round": self.best_round,
            "test_nodes": test.total,
            "test_accuracy_by_view": {
                view: accuracy(hits, test.total) for view, hits in test.correct.items()
            },
            "share_of_views": _shares(self.config),
            "clients": [
                {
                    "client": number,
                    "test_nodes": counts["test"].total,
                    "test_accuracy": accuracy(
                        counts["test"].correct["deployed"], counts["test"].total
                    ),
                    "val_accuracy": accuracy(
                        counts["val"].correct["deployed"], counts["val"].total
                    ),
                }
                for number, counts in clients.items()
                if number is not None
            ],
            "per_condensed_node": condensed,
            "seconds_total": time.perf_counter() - self._start,
            "seconds_by_phase": _sum_dicts([row.seconds for row in self.history]),
            "seconds_per_round": sum(row.train_seconds for row in self.history)
            / max(len(self.history), 1),
            "privacy": _privacy(self.config, len(self.history), self.point.repeats),
            "model_fingerprint": model_fingerprint(self.best_state),
            "code_fingerprint": code_fingerprint(),
            "config": flatten(self.config),
            "versions": _versions(),
            **({"resumed_after": self.point.resumed_after} if self.point.resumed_after else {}),
            **context,
            "history": [asdict(row) for row in self.history],
        }
        partial = self.folder / (RESULT + ".partial")
        partial.write_text(json.dumps(result, indent=1), encoding="utf-8")
        partial.replace(self.folder / RESULT)
        forget(self.folder)
        ended = {
            key: result[key]
            for key in ("test_accuracy", "val_accuracy", "best_round", "seconds_total")
        }
        events.emit(
            "run_ended",
            f"run {self.point.run} ended: test accuracy {ended['test_accuracy']:.4f}",
            **ended,
        )
        return result


@contextmanager
def reason_of_failure(folder: Path) -> Iterator[None]:
    """Leave the reason in `error.txt`, one line, when the block fails; Flower would report a
    success all the same.
    """
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        reason = "; ".join([reason, *getattr(error, "__notes__", [])])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ERROR).write_text(" ".join(reason.split()) + "\n", encoding="utf-8")
        raise


def _privacy(config: RunConfig, rounds: int, repeats: int) -> dict[str, Any]:
    """Return what was promised and spent; no epsilon holds for noise that the run's seed gives
    away.
    """
    settings = config.privacy
    facts: dict[str, Any] = {"secure_aggregation": settings.secure_aggregation, "dp": settings.dp}
    if settings.dp != "none":
        facts |= {
            "epsilon": spent(config, rounds, repeats),
            "delta": settings.delta,
            "seeded": settings.seeded,
        }
        facts |= {
            "noise_multiplier": noise_multiplier(config),
            "clipping_norm": settings.clipping_norm,
        }
    return facts


def _versions() -> dict[str, str]:
    own = {"dance-flwr": __version__, "python": platform.python_version()}
    return own | {name: version(name) for name in _VERSIONS}


def _total(counts: Sequence[Counts]) -> Counts:
    def add(rows: Sequence[Sequence[int]]) -> list[int]:
        return [sum(column) for column in zip(*rows, strict=True)]

    return Counts(
        correct={view: sum(c.correct[view] for c in counts) for view in counts[0].correct},
        total=sum(c.total for c in counts),
        true_positives=add([c.true_positives for c in counts]),
        predicted=add([c.predicted for c in counts]),
        actual=add([c.actual for c in counts]),
    )


def _shares(config: RunConfig) -> dict[str, float]:
    """Return the share of each view in the deployed prediction."""
    views = get_spec(config.method).deployed_views(config)
    return {view: 1 / len(views) for view in views}


def _sum_dicts(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            total[key] = total.get(key, 0.0) + value
    return total


def _per_condensed_node(history: Sequence[Round]) -> dict[str, float]:
    """Return mean neighbours, chunks and tokens per condensed node over all refreshes of the run."""
    total = _sum_dicts([row.counts for row in history])
    nodes = total.pop("condensed-nodes", 0.0)
    means = (
        {key.removeprefix("evidence-"): value / nodes for key, value in total.items()}
        if nodes
        else {}
    )
    rounds = sum(1 for row in history if row.counts.get("condensed-nodes"))
    return {"nodes_per_round": nodes / rounds if rounds else 0.0, **means}
