"""Write the history, the best model and `result.json`, the only source of result tables."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from dance_flwr import events
from dance_flwr.config.paths import COMPARED, ERROR, HISTORY, MODEL, RESULT
from dance_flwr.config.sections import MACRO_F1
from dance_flwr.config.tree import flatten
from dance_flwr.disk import append_to, atomic_path, create_folder, json_text, write_json, write_text
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.dp import spent_epsilon
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.metrics import Counts, Training, accuracy
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.history import Round
from dance_flwr.runs.lifecycle import round_ended
from dance_flwr.runs.reader import validated, why_last_model
from dance_flwr.runs.resume import forget, holds_run, truncate_history
from dance_flwr.runs.summary import (
    calibration_of,
    class_counts,
    client_rows,
    per_condensed_node,
    privacy_facts,
    sum_by_key,
    test_scores,
    total_counts,
    versions,
    view_shares,
)

LOG = logging.getLogger("flwr")
SCHEMA = 1


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
        self.history = [Round.read(line) for line in self.checkpoint.history]
        self.best_round, self.best_state = self.checkpoint.best_round, self.checkpoint.best(folder)
        self._take_traffic, self._take_absent = take_traffic, take_absent
        self._on_round = on_round
        self._clear()
        self._round_start = time.perf_counter()
        self._row = Round(self.checkpoint.round + 1)
        self._calibration = Calibration()

    def _clear(self) -> None:
        """Delete the files of an earlier run, or what this run wrote after its checkpoint."""
        (self.folder / ERROR).unlink(missing_ok=True)
        if not self.checkpoint.arrays:
            for name in (RESULT, MODEL, HISTORY, COMPARED):
                (self.folder / name).unlink(missing_ok=True)
            return
        truncate_history(self.checkpoint, self.folder)
        # The file may be that of a round after the checkpoint, which is repeated.
        if self.best_round:
            self._save_model()

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

    def on_validation(self, val: Counts) -> None:
        """Record the summed validation counts of a round; without nodes it was not validated.

        An accuracy of 0 would make the model of round 1 the best of all rounds.
        """
        if not val.total:
            events.emit("validation_ended", "no client has validation nodes", nodes=0)
            return
        self._row.views = {view: hits / val.total for view, hits in val.correct.items()}
        self._row.val_accuracy, self._row.val_macro_f1 = val.accuracy, val.macro_f1
        score, f1 = self._row.val_accuracy, self._row.val_macro_f1
        events.emit(
            "validation_ended",
            f"validation accuracy {score:.4f}",
            accuracy=score,
            macro_f1=f1,
            nodes=val.total,
        )

    def end_round(
        self, round_: int, state: Mapping[str, Tensor], save: Callable[[], None] = lambda: None
    ) -> None:
        """Complete a round: keep the model if its validation is the best, earlier rounds first."""
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
        best = max((s for r in self.history if (s := self._score(r)) is not None), default=-1.0)
        # Strictly better: of equal rounds the first stays.
        if (score := self._score(row)) is not None and score > best:
            self.best_round, self.best_state = round_, dict(state)
            self.checkpoint.best_model = model_fingerprint(state)
        # Why (decision 26): after the round, as parsing takes half a second, and before it nothing
        # was computed that the code would answer for. Before the row, as nothing slow may stand
        # between the writes: a folder that is deleted meanwhile ends the run at the next row.
        self.checkpoint.stamp()
        # In this order: the row, the checkpoint that counts it, the model that the checkpoint
        # names. A crash between any two leaves what `resume` can continue from.
        self.history.append(row)
        self.checkpoint.history.append(json_text(asdict(row)))
        # Never created anew: files of a folder that was removed may have brought it back.
        with append_to(self.folder / HISTORY, new=len(self.history) == 1) as file:
            file.write((self.checkpoint.history[-1] + "\n").encode())
        self.checkpoint.round, self.checkpoint.best_round = round_, self.best_round
        self.checkpoint.seconds = sum(row.round_seconds for row in self.history)
        save()
        if self.best_round == round_:
            self._save_model()
        round_ended(row, self.checkpoint, self.folder)
        if self._on_round:
            self._on_round(asdict(row))
        self._row, self._round_start = Round(round_ + 1), time.perf_counter()

    def _score(self, row: Round) -> float | None:
        """Return the validation metric that `objective` names; None without a validation."""
        return row.val_macro_f1 if self.config.objective == MACRO_F1 else row.val_accuracy

    def keep_last_model(self, state: Mapping[str, Tensor]) -> None:
        """Keep the last model if no round was validated.

        No client has validation nodes, or a privacy budget ended after a stop.
        """
        # A run always leaves a model, and its result says that no round was validated.
        if not self.best_state:
            self.best_round, self.best_state = self.checkpoint.round, dict(state)
            self._save_model()

    def _save_model(self) -> None:
        # Safetensors stores contiguous tensors only.
        tensors = {name: tensor.contiguous() for name, tensor in self.best_state.items()}
        with atomic_path(self.folder / MODEL) as draft:
            save_file(tensors, draft, metadata={"round": str(self.best_round)})

    def calibrate(self, clients: Mapping[int | None, Mapping[str, Counts]]) -> Calibration:
        """Fit the temperature of the result to the final counts, as for `write`, and return it."""
        self._calibration = calibration_of(clients)
        return self._calibration

    def write(
        self, clients: Mapping[int | None, Mapping[str, Counts]], context: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write `result.json` and return its content.

        Parameters
        ----------
        clients : client -> final counts of "val" and "test" of the best model; None = the sums of
            all clients, where only these are known
        context : further facts: data, hashes, messages, partition folder
        """
        test, val = (
            total_counts([counts[split] for counts in clients.values()])
            for split in ("test", "val")
        )
        rows = client_rows(clients, self.checkpoint.sizes.get("nodes_per_client", {}))
        self.checkpoint.stamp()
        result = {
            "schema": SCHEMA,
            **test_scores(test, rows),
            "val_accuracy": accuracy(val.correct["deployed"], val.total),
            "best_round": self.best_round,
            "test_nodes": test.total,
            "val_nodes": val.total,
            "test_accuracy_by_view": {
                view: accuracy(hits, test.total) for view, hits in test.correct.items()
            },
            "share_of_views": view_shares(self.config),
            "clients": rows,
            "test_by_class": class_counts(test),
            "per_condensed_node": per_condensed_node(self.history),
            "seconds_total": sum(row.round_seconds for row in self.history),
            "seconds_by_phase": sum_by_key([row.seconds for row in self.history]),
            "seconds_by_client": dict(sorted(self.checkpoint.client_seconds.items())),
            "seconds_per_round": sum(row.train_seconds for row in self.history)
            / max(len(self.history), 1),
            "privacy": privacy_facts(self.config, len(self.history), self.checkpoint.repeats),
            "model_fingerprint": model_fingerprint(self.best_state),
            "calibration": asdict(self._calibration),
            "test_calibration_error": self._calibration.error_after,
            "method": self.config.method,
            "seed": self.config.seed,
            "run": self.checkpoint.run,
            "provenance": ", ".join(self.checkpoint.provenance),
            "config": flatten(self.config),
            "versions": versions(),
            **({"resumed_after": stops} if (stops := self.checkpoint.resumed_after) else {}),
            **{name: list(by.values()) for name, by in self.checkpoint.sizes.items()},
            **context,
            "history": [asdict(row) for row in self.history],
        }
        if not val.total and not validated(result):
            LOG.warning(why_last_model(result))
        write_json(self.folder / RESULT, result)
        # After the result: until it exists, the checkpoint is all that is left of the run.
        forget(self.folder)
        self._announce(result)
        return result

    def _announce(self, result: Mapping[str, Any]) -> None:
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


@contextmanager
def reason_of_failure(folder: Path | None, *, began: bool = True) -> Iterator[None]:
    """Write the reason of a failure to `error.txt`, in one line; Flower would report a success.

    Parameters
    ----------
    folder : of the run; None = nowhere to write
    began : False while the run may be refused: then an earlier run in the folder stays as it is
    """
    try:
        yield
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        reason = "; ".join([reason, *getattr(error, "__notes__", [])])
        # A start that is refused changes nothing in the folder of another run.
        if folder and (began or not holds_run(folder)):
            write_text(folder / ERROR, " ".join(reason.split()) + "\n")
        raise
