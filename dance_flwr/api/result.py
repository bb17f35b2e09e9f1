"""`Result`: a finished run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dance_flwr.api.bundle import Bundle, export
from dance_flwr.api.predicting import Predictor
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import counted
from dance_flwr.runs.result import Round, read_history

BUNDLE = "bundle"  # in the folder of a run


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes
    ----------
    folder : of the run: `result.json`, `history.jsonl`, the model
    config : of the run
    facts : content of `result.json`
    """

    folder: Path
    config: RunConfig
    facts: Mapping[str, Any]

    @property
    def test_accuracy(self) -> float | None:
        """Accuracy on the test nodes of all clients; None if no client has any.

        The model is that of the best validation round, or the last one if no round was validated.
        """
        value: float | None = self.facts["test_accuracy"]
        return value

    @property
    def val_accuracy(self) -> float | None:
        """Accuracy of the same model on the validation nodes; None if no client has any."""
        value: float | None = self.facts["val_accuracy"]
        return value

    @property
    def test_macro_f1(self) -> float | None:
        """Macro-F1 on the test nodes; None if no client has any."""
        value: float | None = self.facts["test_macro_f1"]
        return value

    @property
    def clients(self) -> list[Mapping[str, Any]]:
        """One row per client: its number, test nodes, validation and test accuracy.

        An accuracy is None where the client has no nodes of that split.
        """
        return list(self.facts["clients"])

    @property
    def client_folders(self) -> list[Path]:
        """The folder of each client, with its graph and its evidence; they hold source texts."""
        partition = Path(self.facts["partition_dir"])
        return [partition / f"client-{number}" for number in range(self.config.clients)]

    @property
    def history(self) -> list[Round]:
        """One row per round: loss, validation accuracy, seconds, bytes."""
        return read_history(self.folder)

    @cached_property
    def model(self) -> Predictor:
        """The model, ready to predict and explain; its bundle is `bundle` in the run's folder.

        Raises
        ------
        UserError : the method has no global model
        """
        path = self.folder / BUNDLE
        # Exported once, as calibration predicts the validation nodes of every client.
        return Predictor(Bundle.open(path)) if path.exists() else self.export(path)

    @property
    def bundle(self) -> Bundle:
        """The bundle of `model`."""
        return self.model.bundle

    def export(self, path: str | Path) -> Predictor:
        """Write a bundle to a new folder and return its model; it holds no text of a client.

        Raises
        ------
        UserError : the folder exists, or the method has no global model
        """
        return Predictor(export(self.folder, Path(path).expanduser()))

    def __repr__(self) -> str:
        test = self.test_accuracy
        score = "without test nodes" if test is None else f"test accuracy {test:.4f}"
        what = f"{self.config.method}, {counted(self.config.clients, 'client')}"
        return f"Result({what}, {score}, {self.folder})"
