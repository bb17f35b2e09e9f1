"""A finished run of DANCE, opened for its evidence: its record, model, clients and packs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.state import RunFolder
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.evidence.explain import Explainer
from dance_flwr.federation.client.client import Client, load_at, shape_of
from dance_flwr.federation.client.own_model import deployed_own
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.methods import get_spec
from dance_flwr.runs.reader import config_of, load_model, read_result


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of method "dance".

    Attributes
    ----------
    folder : the run's folder, with `result.json` and `model.safetensors`
    result : content of `result.json`; config : the run's configuration
    client_folder : folder of the one client to read; None = all clients of the run's partition
    """

    folder: Path
    result: Mapping[str, Any]
    config: RunConfig
    client_folder: Path | None = None

    @classmethod
    def open(cls, folder: Path, client_folder: Path | None = None) -> "FinishedRun":
        """Open the run in `folder`."""
        result = read_result(folder)
        if result["method"] != "dance":
            raise UserError(
                f"{folder}: expected a run of method 'dance', found {result['method']!r}, which "
                "keeps no evidence"
            )
        try:
            # Read as a run of this version: what it does not know would change what is computed.
            config = config_of(result)
        except ConfigError as error:
            raise UserError(
                f"{folder}: expected the configuration of a run of this version, found {error}; "
                "read the run with the version that wrote it"
            ) from None
        return cls(folder, result, config, client_folder)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The saved state dict of the best validation round."""
        # Why (decision 20): a model is compared with the record whenever it is read.
        return load_model(self.folder, self.model_id)

    @property
    def model_id(self) -> str:
        """Fingerprint of the model, as the run's record names it."""
        return str(self.result["model_fingerprint"])

    @property
    def settings(self) -> DanceConfig:
        """The section `dance` of the run's configuration."""
        return DanceConfig.of(self.config)

    @property
    def clients(self) -> list[int | None]:
        """Numbers of the clients to read; None is the client of `client_folder`."""
        return [None] if self.client_folder is not None else list(range(self.config.clients))

    def folder_of(self, client: int | None) -> Path:
        """Return the folder of a client."""
        # A deployment records no partition: its clients keep their folders to themselves.
        partition = self.result["partition_dir"]
        if self.client_folder is None and partition is None:
            raise UserError(
                "expected --client-folder, found none; the clients of this run keep their "
                "evidence on their own machines"
            )
        if self.client_folder is None and client not in self.clients:
            raise UserError(
                f"--client: expected a number from 0 to {self.config.clients - 1}, found {client}"
            )
        return self.client_folder or Path(partition) / f"client-{client}"

    def data(self, client: int | None, derived_folder: Path | None = None) -> ClientData:
        """Open the data of a client; errors are those of `folder_of`."""
        return ClientData.of(self.folder_of(client), self.config, derived_folder)

    def run_folder(self, data: ClientData) -> RunFolder:
        """Return the folder that this run left at a client."""
        return RunFolder(data.folder, self.result["run"])

    def explainer(self, data: ClientData) -> Explainer:
        """Return the saved model at a client's data, with its prior, the run's `smoothing`, and the
        client's own model.
        """
        shape = shape_of(data.text_dim, len(data.card.class_names), self.config)
        # With all of these, so that evidence explains what the run has predicted.
        model = get_spec(self.config.method).make_client().build(shape, self.config)
        load_at(data, model, self.weights, self.config)
        client = Client(data, self.config)
        client.own = deployed_own(data.folder, str(self.result["run"]), self.config)
        return Explainer(
            cast(DanceModel, model),
            data,
            self.settings,
            int(self.result["best_round"]),
            self.model_id,
            smoothing_of(self.config, data),
            client.mixture(),
        )
