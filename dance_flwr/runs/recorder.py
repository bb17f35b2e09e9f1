"""Write the history, the best model and `result.json`, the only source of result tables."""

import json
import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from dance_flwr import __version__, events
from dance_flwr.config.paths import ERROR, HISTORY, MODEL, RESULT
from dance_flwr.config.sections import MACRO_F1
from dance_flwr.config.tree import flatten
from dance_flwr.disk import append_to, atomic_path, create_folder, json_text, write_text
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.dp import spent_epsilon
from dance_flwr.federation.wire.keys import TEMPERATURE
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.metrics import Counts, Training, accuracy, balanced_accuracy, macro_f1
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.result import (
    SCHEMA,
    Round,
    privacy_of,
    sum_by_key,
    validated,
    why_last_model,
    write_result,
)
from dance_flwr.runs.resume import forget, holds_run

LOG = logging.getLogger("flwr")
_VERSIONS = ("flwr", "torch", "torch-geometric", "sentence-transformers", "entmax", "scikit-learn")

# Client -> counts of "val" and "test"; None = the sums of all clients, if only these are known.
ClientCounts = Mapping[int | None, Mapping[str, Counts]]


class Recorder:
    """Record the history of a run, its best model by validation, and `result.json`.

    Parameters
    ----------
    folder : of the run; created if missing
    checkpoint : where the run starts, with its configuration; updated in every round
    take_traffic : returns model bytes (down, up) per client since the last call
    take_absent : returns the clients that did not take part since the last call, and why
    on_round : called with each finished row, for progress
    """

    def __init__(
        self,
        folder: Path,
        checkpoint: Checkpoint,
        take_traffic: Callable[[], tuple[dict[int, int], dict[int, int]]],
        take_absent: Callable[[], dict[int, str]] = dict,
        on_round: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.checkpoint, self.config = checkpoint, checkpoint.config
        create_folder(folder)
        self.folder = folder
        self.history = [Round.of(json.loads(line)) for line in checkpoint.history]
        self._lines = list(checkpoint.history)
        self.best_round, self.best_state = checkpoint.best_round, checkpoint.best(folder)
        self._take_traffic, self._take_absent = take_traffic, take_absent
        self._on_round = on_round
        self._clear()
        self._round_start = time.perf_counter()
        self._row = Round(checkpoint.round + 1)
        # The last round and its model, while its validation is to come with the next training.
        self._waiting: tuple[Round, dict[str, Tensor]] | None = None
        if last := checkpoint.waiting_row:
            self._waiting = last, checkpoint.deployed()
        self._calibration = Calibration()

    def _clear(self) -> None:
        """Delete the files of an earlier run, or what this run wrote after its checkpoint."""
        (self.folder / ERROR).unlink(missing_ok=True)
        if not self.checkpoint.arrays:
            for name in (RESULT, MODEL, HISTORY):
                (self.folder / name).unlink(missing_ok=True)
            return
        rows = "".join(line + "\n" for line in self.checkpoint.history)
        write_text(self.folder / HISTORY, rows)
        # The file may be that of a round after the checkpoint, which is repeated.
        if self.best_round:
            self._save_model(lasting=True)

    def on_train(self, trained: Training) -> None:
        """Record the cost and the counts of a round of training."""
        # JSON has neither NaN nor infinity; a masked sum may hide the loss.
        self._row.loss = trained.loss if isfinite(trained.loss) else None
        self._row.seconds, self._row.counts = dict(trained.seconds), dict(trained.counts)
        self._row.skipped = trained.skipped
        self._row.train_seconds = time.perf_counter() - self._round_start
        known = self.checkpoint.client_seconds
        for client, seconds in trained.by_client.items():
            known[client] = sum_by_key([known.get(client, {}), seconds])

    def on_validation(self, val: Counts | None) -> None:
        """Record the summed counts of a validation, None if hidden, and complete its round.

        Without nodes the round was not validated: an accuracy of 0 would make the model of round 1
        the best of all rounds.
        """
        row = self._waiting[0] if self._waiting else self._row
        if val and val.total:
            row.views = {view: hits / val.total for view, hits in val.correct.items()}
            row.val_accuracy, row.val_macro_f1 = val.accuracy, val.macro_f1
            events.emit(
                "validation_ended",
                f"validation accuracy {val.accuracy:.4f}",
                round=row.round,
                accuracy=val.accuracy,
                macro_f1=val.macro_f1,
                nodes=val.total,
            )
        elif val:
            text = "no client has validation nodes"
            events.emit("validation_ended", text, round=row.round, nodes=0)
        if self._waiting:
            row, state = self._waiting
            self._waiting = None
            self._append(row, state)
            # The file may hold a model only if a checkpoint names it; the one of this round still
            # has the row as waiting, so that a resumed run asks again.
            if self.best_round == row.round:
                self.checkpoint.save(self.folder)
            self._announce(row)

    def end_round(
        self,
        round_: int,
        state: Mapping[str, Tensor],
        save: Callable[[], None] = lambda: None,
        *,
        waits: bool = False,
    ) -> None:
        """Write the checkpoint of a round, and complete the round unless its validation `waits`."""
        row = self._row
        row.round = round_
        row.round_seconds = time.perf_counter() - self._round_start
        row.bytes_down, row.bytes_up = self._take_traffic()
        row.absent = self._take_absent()
        row.epsilon = spent_epsilon(self.config, round_, self.checkpoint.repeats)
        if row.epsilon is not None:
            LOG.info(
                "round %d: spent epsilon %.4g of %g of training nodes",
                round_,
                row.epsilon,
                self.config.privacy.epsilon,
            )
        # Why (decision 26): after the round, as parsing takes half a second, and before it this
        # code has computed nothing. Before the row, as nothing slow may stand between the writes:
        # the next row ends the run if its folder was deleted meanwhile.
        self.checkpoint.stamp()
        # In this order: the row, the checkpoint that counts it, the model that the checkpoint
        # names. A crash between any two leaves what `resume` can continue from.
        if waits:
            self._waiting = row, dict(state)
        else:
            self._append(row, state)
        self.checkpoint.waiting = json_text(asdict(row)) if waits else ""
        self.checkpoint.history, self.checkpoint.round = list(self._lines), round_
        self.checkpoint.seconds += row.round_seconds
        save()
        if not waits:
            self._announce(row)
        events.bind_context(round=round_ + 1)  # later events belong to the next round
        self._row, self._round_start = Round(round_ + 1), time.perf_counter()

    def _append(self, row: Round, state: Mapping[str, Tensor]) -> None:
        """Append a row to the history; keep the model if its validation is the best so far."""
        best = max((s for r in self.history if (s := self._score(r)) is not None), default=-1.0)
        # Strictly better: of equal rounds the first stays.
        if (score := self._score(row)) is not None and score > best:
            self.best_round, self.best_state = row.round, dict(state)
            self.checkpoint.best_round = row.round
            self.checkpoint.best_model = model_fingerprint(state)
        self.history.append(row)
        self._lines.append(json_text(asdict(row)))
        # Never created anew, as that would bring back a folder that was removed.
        with append_to(self.folder / HISTORY, new=len(self.history) == 1) as file:
            file.write((self._lines[-1] + "\n").encode())

    def _announce(self, row: Round) -> None:
        """Save the model of a completed round if it is the best, and report the round."""
        if self.best_round == row.round:
            self._save_model()
        events.emit(
            "round_ended",
            f"round {row.round} of {self.config.rounds} took {row.round_seconds:.3g} s",
            round=row.round,
            seconds=row.round_seconds,
            loss=row.loss,
            accuracy=row.val_accuracy,
            bytes_down=sum(row.bytes_down.values()),
            bytes_up=sum(row.bytes_up.values()),
            answered=row.answered,
            absent=sorted(row.absent),
            epsilon=row.epsilon,
            skipped=row.skipped or None,
        )
        if self._on_round:
            self._on_round(asdict(row))

    def _score(self, row: Round) -> float | None:
        return row.val_macro_f1 if self.config.objective == MACRO_F1 else row.val_accuracy

    def settle_model(self, state: Mapping[str, Tensor]) -> None:
        """Settle the model of the result, so that a resumed run has no other.

        Parameters
        ----------
        state : of the last round, for a run without any validation: no client has validation
            nodes, or a privacy budget ended after a stop
        """
        if not self.best_state:
            self.best_round, self.best_state = self.checkpoint.round, dict(state)
        # Before any client sees it, as a client takes one final model of a run.
        self._save_model(lasting=True)
        self.checkpoint.save(self.folder, lasting=True)

    def _save_model(self, *, lasting: bool = False) -> None:
        # Safetensors stores contiguous tensors only.
        tensors = {name: tensor.contiguous() for name, tensor in self.best_state.items()}
        with atomic_path(self.folder / MODEL, lasting=lasting) as draft:
            draft.write_bytes(save(tensors, {"round": str(self.best_round)}))

    def calibrate(self, clients: ClientCounts) -> Calibration:
        """Fit the temperature of the result to the final counts, as for `write`, and return it.

        It is settled like the model: a resumed run keeps that of which clients may have heard.
        """
        val, test = _total(clients, "val"), _total(clients, "test")
        own = [each["val"].calibration for each in clients.values() if each["val"].total]
        gaps, settled = (test.calibration, test.total), self.checkpoint.numbers
        self._calibration = Calibration.fit(own, val.total, *gaps, settled.get(TEMPERATURE))
        settled[TEMPERATURE] = self._calibration.temperature
        self.checkpoint.save(self.folder, lasting=True)
        return self._calibration

    def write(self, clients: ClientCounts, context: Mapping[str, Any]) -> dict[str, Any]:
        """Write `result.json` and return its content.

        Parameters
        ----------
        clients : final counts of the best model
        context : further entries: data, hashes, messages, partition folder
        """
        self.checkpoint.stamp()
        result = self._result(clients, context)
        if not result["val_nodes"] and not validated(result):
            LOG.warning(why_last_model(result))
        write_result(self.folder, result)
        # After the result: until it exists, the checkpoint is all that is left of the run.
        forget(self.folder)
        score = result["test_accuracy"]
        events.emit(
            "run_ended",
            f"run {self.checkpoint.run} ended: "
            + ("no count of test nodes" if score is None else f"test accuracy {score:.4f}"),
            test_accuracy=score,
            val_accuracy=result["val_accuracy"],
            best_round=self.best_round,
            seconds_total=result["seconds_total"],
        )
        return result

    def _result(self, clients: ClientCounts, context: Mapping[str, Any]) -> dict[str, Any]:
        test, val = _total(clients, "test"), _total(clients, "val")
        rows = _client_rows(clients, self.checkpoint.sizes.get("nodes_per_client", {}))
        views = get_spec(self.config.method).deployed_views(self.config)
        rounds = len(self.history)
        return {
            "schema": SCHEMA,
            "test_accuracy": accuracy(test.correct["deployed"], test.total),
            "test_macro_f1": macro_f1(test.true_positives, test.predicted, test.actual),
            "test_balanced_accuracy": balanced_accuracy(test.true_positives, test.actual),
            "test_worst_client": min(
                (row["test_accuracy"] for row in rows if row["test_nodes"]), default=None
            ),
            "val_accuracy": accuracy(val.correct["deployed"], val.total),
            "best_round": self.best_round,
            "test_nodes": test.total,
            "val_nodes": val.total,
            "test_accuracy_by_view": {
                view: accuracy(hits, test.total) for view, hits in test.correct.items()
            },
            "share_of_views": {view: 1 / len(views) for view in views},
            "clients": rows,
            "test_by_class": {
                "nodes": list(test.actual),
                "predicted": list(test.predicted),
                "correct": list(test.true_positives),
            },
            "per_condensed_node": _per_condensed_node(self.history),
            "seconds_total": sum(row.round_seconds for row in self.history),
            "seconds_by_phase": sum_by_key(row.seconds for row in self.history),
            "seconds_by_client": dict(sorted(self.checkpoint.client_seconds.items())),
            "seconds_per_round": sum(row.train_seconds for row in self.history) / max(rounds, 1),
            "privacy": privacy_of(self.config, rounds, self.checkpoint.repeats),
            "model_fingerprint": model_fingerprint(self.best_state),
            "calibration": asdict(self._calibration),
            "test_calibration_error": self._calibration.error_after,
            "method": self.config.method,
            "seed": self.config.seed,
            "run": self.checkpoint.run,
            "provenance": ", ".join(self.checkpoint.provenance),
            "config": flatten(self.config),
            "versions": _versions(),
            **({"resumed_after": stops} if (stops := self.checkpoint.resumed_after) else {}),
            **{name: list(by.values()) for name, by in self.checkpoint.sizes.items()},
            **context,
            "history": [asdict(row) for row in self.history],
        }


def _total(clients: ClientCounts, split: str) -> Counts:
    counts = [each[split] for each in clients.values()]

    def add(rows: Sequence[Sequence[int]]) -> list[int]:
        return [sum(column) for column in zip(*rows, strict=True)]

    return Counts(
        # Without a view that some client did not count: its sum would be over other nodes.
        correct={
            view: sum(each.correct[view] for each in counts)
            for view in counts[0].correct
            if all(view in each.correct for each in counts)
        },
        total=sum(each.total for each in counts),
        true_positives=add([each.true_positives for each in counts]),
        predicted=add([each.predicted for each in counts]),
        actual=add([each.actual for each in counts]),
        calibration=add([each.calibration for each in counts]),
    )


def _client_rows(clients: ClientCounts, nodes: Mapping[int | None, int]) -> list[dict[str, Any]]:
    """Return the nodes, accuracies and hits of every client; none if only sums are known.

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
        for number, counts in clients.items()
        if number is not None
    ]


def _per_condensed_node(history: Sequence[Round]) -> dict[str, float]:
    """Return mean neighbours, chunks and tokens per condensed node over all refreshes.

    Without condensed nodes, "supervised_per_round" is the mean number of labelled nodes that a
    round supervised at all clients, if the method reports it.
    """
    total = sum_by_key(row.counts for row in history)
    nodes = total.pop("condensed-nodes", 0.0)
    if nodes:
        refreshes = sum(1 for row in history if row.counts.get("condensed-nodes"))
        means = {key.removeprefix("evidence-"): value / nodes for key, value in total.items()}
        return {"nodes_per_round": nodes / refreshes, **means}
    supervised = total.get("evidence-supervised", 0.0)
    means = {"supervised_per_round": supervised / len(history)} if supervised else {}
    return {"nodes_per_round": 0.0, **means}


@cache
def _versions() -> dict[str, str]:
    app = {"dance-flwr": __version__, "python": platform.python_version()}
    return app | {name: version(name) for name in _VERSIONS}


@contextmanager
def reason_of_failure(folder: Path | None, *, began: bool = True) -> Iterator[None]:
    """Write the reason of a failure to `error.txt`, in one line; Flower would report a success.

    Parameters
    ----------
    folder : of the run; None = nowhere to write
    began : False while the run may be refused; a refused run leaves an earlier one in the folder
        as it is
    """
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        reason = "; ".join([reason, *getattr(error, "__notes__", [])])
        if folder and (began or not holds_run(folder)):
            write_text(folder / ERROR, " ".join(reason.split()) + "\n")
        raise


@contextmanager
def observe_run(checkpoint: Checkpoint, folder: Path) -> Iterator[None]:
    """Emit events for the start and the end of the run in the block, however it ends."""
    config, resumes = checkpoint.config, bool(checkpoint.arrays)
    event, word = ("run_resumed", "resumes") if resumes else ("run_started", "starts")
    with events.log_context(run=checkpoint.run), events.log_to(folder, resumes):
        events.emit(
            event,
            f"run {checkpoint.run} {word} with round {checkpoint.round + 1}",
            method=config.method,
            rounds=config.rounds,
            clients=config.clients,
            round=checkpoint.round,
        )
        events.bind_context(round=checkpoint.round + 1)
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            events.emit(
                "run_failed", f"run {checkpoint.run} failed: {reason}", logging.ERROR, reason=reason
            )
            raise
        except BaseException:
            # A signal is no failure: the run can be resumed.
            events.emit("run_interrupted", f"run {checkpoint.run} was interrupted", logging.ERROR)
            raise
