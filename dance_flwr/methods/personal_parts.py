"""The client sides of FedPer and Ditto."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.methods.baselines import DittoConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.server_side import (
    Entry,
    Merged,
    ServerSide,
    State,
    Upload,
    entries_of,
    entries_under,
    for_client,
)
from dance_flwr.methods.whole_graph import FedAvgFull
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.training import proximal_term
from dance_flwr.seeding import seeded


class Personalised(ServerSide):
    """omega_k <- the model that client k has just trained; nothing is shared.

    A server side that shares overrides `combine`.
    """

    def combine(
        self, models: Mapping[int, State], statistics: Mapping[int, Mapping[str, Tensor]]
    ) -> tuple[Mapping[int, State], dict[str, int]]:
        """Return the next model of each client of the round, and counts for the history.

        Parameters
        ----------
        models, statistics : client -> what it uploaded in this round, ordered by client
        """
        return models, {}

    def initial(self, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return M copies of the initial model, one per client."""
        # The same start at all clients, as if there were one model.
        return _join({client: model for client in range(self.config.clients)})

    def model_for(self, client: int, model: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return the client's own model."""
        return entries_of(model, client)

    def expected(self, start: State) -> State:
        """Return one client's model; names and shapes are the same at all clients."""
        return entries_of(start, 0)

    def merge(self, uploads: Sequence[Upload], start: State, bound: float, round_: int) -> Merged:
        """Return the models of all clients; those without an upload are unchanged."""
        models = {_client_of(upload): upload.state for upload in uploads}
        statistics = {_client_of(upload): upload.statistics for upload in uploads}
        combined, counts = self.combine(models, statistics)
        new = _join(combined)
        # A client without an upload keeps its last model: FedGTA, for instance, has no mean for it.
        return Merged({name: new.get(name, old) for name, old in start.items()}, counts=counts)


def _join(models: Mapping[int, Mapping[str, Entry]]) -> dict[str, Entry]:
    return {
        name: entry
        for client, model in models.items()
        for name, entry in for_client(model, client).items()
    }


def _client_of(upload: Upload) -> int:
    assert upload.client is not None, "personalised models need single uploads"
    return upload.client


LAST, MEAN = "last/", "mean/"
_WEIGHT = "weight"


def stored(data: ClientData, run: str, round_: int, part: str) -> dict[str, Tensor]:
    """Return what the client kept after round `round_`, or after its last one before; else {}.

    Parameters
    ----------
    part : `LAST`, the tensors that it trained last, or `MEAN`, their running average over rounds,
        as the server averages the global models (`ema-decay`)
    """
    return entries_under(_stored(data, run, round_), part)


def keep(data: ClientData, config: RunConfig, info: RoundInfo, state: Mapping[str, Tensor]) -> None:
    """Keep the tensors of a round, and their running average.

    A repeated round replaces its own file and reads that of the round before.
    """
    before = _stored(data, info.run, info.round - 1)
    weight = 1 + config.ema_decay * float(before.get(_WEIGHT, 0))
    arrays = {_WEIGHT: torch.tensor(weight)}
    for name, tensor in state.items():
        past = before.get(MEAN + name, tensor)
        arrays[LAST + name] = tensor
        arrays[MEAN + name] = torch.lerp(past.double(), tensor.double(), 1 / weight).to(past.dtype)
    folder = run_folder(data.folder, info.run)
    write_npz(
        folder / _name(info.round),
        {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()},
    )
    # The best round is one of the validated ones; a repeated round needs the one before it.
    old = info.round - 2
    if old > 0 and old % config.evaluate_every:
        (folder / _name(old)).unlink(missing_ok=True)


def _stored(data: ClientData, run: str, round_: int) -> dict[str, Tensor]:
    folder, newest = run_folder(data.folder, run), _name(round_)
    paths = [path for path in folder.glob("personal-?????.npz") if path.name <= newest]
    arrays = read_npz(max(paths)) if paths else None
    return {name: torch.as_tensor(a, device=data.device) for name, a in (arrays or {}).items()}


def _name(round_: int) -> str:
    return f"personal-{round_:05d}.npz"


class _Personal(FedAvgFull):
    def part(self, model: PlainModel) -> nn.Module:
        return model

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict with the client's part of this round; with the received one before its first."""
        if state := stored(data, info.run, info.round, MEAN):
            self.part(model).load_state_dict(state)
        return super().predict(model, data, config, info, nodes)


class FedPer(_Personal):
    """FedAvg's local training of the common body with the client's own head."""

    def part(self, model: PlainModel) -> nn.Module:
        """Return the head."""
        return model.head_graph

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train body and head, keep the head, and put back the one that came with the body."""
        head = self.part(model)
        received = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        head.load_state_dict(stored(data, info.run, info.round - 1, LAST) or received)
        report = super().train(model, data, config, info)
        keep(data, config, info, head.state_dict())
        head.load_state_dict(received)
        return report


class Ditto(_Personal):
    """FedAvg's local training of the global model, then of the client's personal one."""

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Train w as FedAvg does, then v; report the loss of w and the seconds of both."""
        personal = deepcopy(model)
        report = super().train(model, data, config, info)
        # Its draws are those of `local-only`, which it equals with mu = 0.
        draws = seeded(config.seed, "train", round_=info.round, client=data.card.client)
        with report.phase("train"), draws:
            received = [parameter.detach().clone() for parameter in personal.parameters()]
            if last := stored(data, info.run, info.round - 1, LAST):
                personal.load_state_dict(last)
            with proximal_term(personal, DittoConfig.of(config).mu, received):
                super().train(personal, data, config, info)
        keep(data, config, info, personal.state_dict())
        return report
