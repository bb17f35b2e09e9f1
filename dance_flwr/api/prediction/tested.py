"""The test nodes of a finished run's clients, predicted again by the models that they deploy.

Clients send counts, not pairs of classes nor what two models say of one node, so a run's record has
neither.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.validated import labelled_nodes
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.digests import check_files, data_commitment
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.client.client import Client, shape_of
from dance_flwr.federation.client.run_files import deployed_own
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.result import config_of, load_model


@dataclass(frozen=True)
class TestedClient:
    """The predictions of one client's test nodes.

    Attributes
    ----------
    client : its number; class_names : in the order of the classes
    labels : [m] int64
    predicted : view -> [m] int64 class, "deployed" among them
    """

    client: int
    class_names: tuple[str, ...]
    labels: Tensor
    predicted: Mapping[str, Tensor]


def tested_clients(
    run: Path, result: Mapping[str, Any], client_folder: Path | None = None
) -> Iterator[TestedClient]:
    """Yield the clients of a finished run whose data is that of its record.

    Parameters
    ----------
    run : folder of the run; result : content of its `result.json`
    client_folder : of the one client to read; None = all of the run's partition
    """
    partition = result.get("partition_dir")
    if client_folder is None and (not partition or not Path(partition).is_dir()):
        raise UserError("Not known here: the clients' folders are not on this machine.")
    try:
        config = config_of(result)
    except ConfigError as error:
        raise UserError(f"Not known here: the run is of another version: {error}.") from None
    weights = load_model(run, str(result["model_fingerprint"]))
    folders = [client_folder] if client_folder else _folders(Path(str(partition)), config, result)
    for folder in folders:
        card = check_files(folder)
        # Why (decision 20): predictions on other data would not be those of the run.
        if data_commitment(card) != result.get(DATA_SHA256, {}).get(str(card.client)):
            raise UserError(
                f"Not known here: {folder} was altered or prepared again after the run."
            )
        yield _predicted(folder, config, weights, result)


def _folders(partition: Path, config: RunConfig, result: Mapping[str, Any]) -> list[Path]:
    """Return the folders of the clients that took part, by the run's record."""
    recorded = result.get(DATA_SHA256, {})
    folders = [partition / f"client-{k}" for k in range(config.clients) if str(k) in recorded]
    if not folders:
        raise UserError("Not known here: the run's record holds no hash of a client's data.")
    return folders


def load_client(
    folder: Path, config: RunConfig, weights: Mapping[str, Tensor], scratch: Path
) -> Client:
    """Return a client of a run with its model; only `scratch` is written to."""
    data = ClientData.of(folder, config, scratch / "derived")
    client, classes = Client(data, config), len(data.card.class_names)
    side = client.spec.server_type()(config, shape_of(data.text_dim, classes, config))
    client.load(dict(side.model_for(data.card.client, weights)))
    return client


@torch.no_grad()
def _predicted(
    folder: Path, config: RunConfig, weights: Mapping[str, Tensor], result: Mapping[str, Any]
) -> TestedClient:
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        client = load_client(folder, config, weights, Path(scratch))
        client.own = deployed_own(folder, str(result["run"]), config)
        data = client.data
        parts = [labelled_nodes(data, split) for split in (VAL, TEST)]
        info = RoundInfo(
            *(str(result["run"]), int(result["best_round"]), str(result["model_fingerprint"])),
            final=True,
            smooth=smoothing_of(config, data),
        )
        # Both splits at once, as at the end of the run: a method may draw neighbours per batch.
        views = client.predict(info, torch.cat(parts))
        guesses = {name: probs.argmax(dim=1)[len(parts[0]) :] for name, probs in views.items()}
        names, labels = tuple(data.card.class_names), data.labels[parts[1]]
        return TestedClient(data.card.client, names, labels, guesses)
