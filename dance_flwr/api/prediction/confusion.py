"""The confusion matrix of a finished run, from the clients' folders where they are on this machine.

Clients send counts by class, not by pair of classes, so a run's record has none. Here the saved
model predicts the test nodes again, as the clients did at the end.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.digests import check_files, data_commitment
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.client.client import Client, shape_of
from dance_flwr.federation.client.own_model import deployed_own
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.federation.wire.keys import DATA_SHA256
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.runs.reader import config_of, load_model


@dataclass(frozen=True)
class Confusion:
    """Counts of the test nodes of all clients.

    Attributes
    ----------
    class_names : in the order of the classes
    counts : [classes][predictions] nodes
    remark : how the counts differ from the run's record; "" = not at all
    """

    class_names: Sequence[str]
    counts: Sequence[Sequence[int]]
    remark: str = ""


def confusion_matrix(run: Path, result: Mapping[str, Any]) -> Confusion:
    """Predict the test nodes of a finished run's clients again, and count.

    Parameters
    ----------
    run : folder of the run; result : content of its `result.json`

    Raises
    ------
    UserError : the folders are elsewhere, or they or the model were altered after the run
    """
    partition = result.get("partition_dir")
    if not partition or not Path(partition).is_dir():
        raise UserError("Not known here: the clients' folders are not on this machine.")
    try:
        config = config_of(result)
    except ConfigError as error:
        raise UserError(f"Not known here: the run is of another version: {error}.") from None
    weights = load_model(run, str(result["model_fingerprint"]))
    total, names = torch.zeros(0, 0, dtype=torch.int64), tuple[str, ...]()
    for client in range(config.clients):
        folder = Path(partition) / f"client-{client}"
        if (recorded := result.get(DATA_SHA256, {}).get(str(client))) is None:
            continue  # it took no part
        card = check_files(folder)
        # Why (decision 20): predictions on other data would not be those of the run.
        if data_commitment(card) != recorded:
            raise UserError(
                f"Not known here: {folder} was altered or prepared again after the run."
            )
        names = card.class_names
        counts = _client_counts(folder, config, weights, result)
        total = counts if not total.numel() else total + counts
    if not names:
        raise UserError("Not known here: the run's record holds no hash of a client's data.")
    return Confusion(names, total.tolist(), _remark(total, result))


def load_client(
    folder: Path, config: RunConfig, weights: Mapping[str, Tensor], scratch: Path
) -> Client:
    """Return a client of a run with its model; only `scratch` is written to."""
    inductive, derived = config.split_mode == "inductive", scratch / "derived"
    data = ClientData(folder, torch.device("cpu"), inductive, reading_of(config), derived)
    client, classes = Client(data, config), len(data.card.class_names)
    side = client.spec.server_type()(config, shape_of(data.text_dim, classes, config))
    client.load(dict(side.model_for(data.card.client, weights)))
    return client


@torch.no_grad()
def _client_counts(
    folder: Path, config: RunConfig, weights: Mapping[str, Tensor], result: Mapping[str, Any]
) -> Tensor:
    """Return [C, C] counts of a client's test nodes, by class and prediction."""
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as scratch:
        client = load_client(folder, config, weights, Path(scratch))
        client.own = deployed_own(folder, str(result["run"]), config)
        data, classes = client.data, len(client.data.card.class_names)
        labelled = data.labels >= 0
        parts = [torch.nonzero((data.split == s) & labelled).flatten() for s in (VAL, TEST)]
        info = RoundInfo(
            *(str(result["run"]), int(result["best_round"]), str(result["model_fingerprint"])),
            final=True,
            smooth=smoothing_of(config, data),
        )
        # Both splits at once, as at the end of the run: a method may draw neighbours per batch.
        guess = client.predict(info, torch.cat(parts))["deployed"].argmax(dim=1)[len(parts[0]) :]
        pairs = data.labels[parts[1]] * classes + guess
        return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def _remark(counts: Tensor, result: Mapping[str, Any]) -> str:
    """Return how the counts differ from the run's record; "" where they agree."""
    hits, nodes = int(counts.diagonal().sum()), int(counts.sum())
    recorded = round((result["test_accuracy"] or 0.0) * result["test_nodes"])
    if (hits, nodes) == (recorded, result["test_nodes"]):
        return ""
    return (
        f"The run itself counted {recorded:,} of {result['test_nodes']:,} right, on another device "
        "or without a client that did not answer at the end."
    )
