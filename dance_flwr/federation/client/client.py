"""A client: its data, its method and its model. Independent of Flower."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from torch import Tensor, nn

from dance_flwr.client_data.cached import file_version
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.validated import labelled_nodes, validated_nodes
from dance_flwr.config.sections import LABELS, ReadingConfig, reading_of
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import CARD
from dance_flwr.data.graphs.codes import TEST, VAL
from dance_flwr.data.graphs.limits import limits
from dance_flwr.errors import UserError
from dance_flwr.federation.client.device import pick_device
from dance_flwr.federation.client.measured import Measured
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import ExchangingMethod, RoundInfo, SealingMethod, Uplink
from dance_flwr.metrics import Counts, Report, count
from dance_flwr.nn.calibration import confidence_gaps, temperature_losses
from dance_flwr.nn.model import ModelShape, load_state
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.training import proximal_term
from dance_flwr.seeding import seeded

# Few runs have personal models.
if TYPE_CHECKING:
    from dance_flwr.federation.client.own_models import OwnModel
    from dance_flwr.nn.mixture import Mixture

_SPLITS = {"val": VAL, "test": TEST}
# What the server needs of each split to fit a temperature, and to measure it.
_CALIBRATION = {"val": temperature_losses, "test": confidence_gaps}


def shape_of(text_dim: int, classes: int, config: RunConfig) -> ModelShape:
    """Return the widths of the global model."""
    return ModelShape(text_dim, config.hidden_dim, classes)


def initial_model(shape: ModelShape, config: RunConfig) -> nn.Module:
    """Return omega^(0), the same for the same seed."""
    with seeded(config.seed, "model"):
        return get_spec(config.method).make_client().build(shape, config)


def load_at(
    data: ClientData, model: nn.Module, state: Mapping[str, Tensor], config: RunConfig
) -> None:
    """Load this state into `model`, with the `class-prior` of the client."""
    load_state(model, moved(dict(state), data.device))
    if config.class_prior == LABELS:
        # Why (decision 18): the client's own label shares, which are never uploaded.
        # Why in place (decision 31): a captured epoch reads the prior at its old address.
        model.prior = torch.mul(data.log_class_shares, config.prior_strength, out=model.prior)  # type: ignore[arg-type]


class Client:
    """Data, a method, and a model that each message overwrites.

    The clients of one process share the model.

    Attributes
    ----------
    own : the client's own models; None = deploy the global one alone
    """

    def __init__(self, data: ClientData, config: RunConfig) -> None:
        self.data = data
        self.config = config
        self.spec = get_spec(config.method)
        self.method = self.spec.make_client()
        shape = shape_of(data.text_dim, len(data.card.class_names), config)
        self.model = _model(shape, config, data.device)
        self.own: OwnModel | None = None

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load this state into the model of the process, with this client's prior."""
        load_at(self.data, self.model, state, self.config)

    def train(
        self, state: Mapping[str, Tensor], info: RoundInfo, *, proximal_mu: float = 0.0
    ) -> tuple[dict[str, Tensor], Report]:
        """Train one round from this model; return the new state, on the host, and the report."""
        self.load(state)
        client = self.data.card.client
        with (
            seeded(self.config.seed, "train", round_=info.round, client=client),
            proximal_term(self.model, proximal_mu),
        ):
            report = self.method.train(self.model, self.data, self.config, info)
        # A method of sums may run under masks, which allow nothing else to leave a client.
        if report.statistics and self.spec.uplink is Uplink.SUM:
            found = f"found {', '.join(report.statistics)}; declare Uplink.EACH in its spec"
            raise ValueError(f"expected no statistics of a method of sums, {found}")
        trained = dict(self.model.state_dict())
        if self.data.device == HOST:  # before the next client of this process overwrites the model
            trained = {name: tensor.clone() for name, tensor in trained.items()}
        return moved(trained, HOST), report

    def exchange(self, run: str, step: int, inbox: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run a step of the method's exchange; return the tensors for the server."""
        if not isinstance(self.method, ExchangingMethod):
            raise UserError(
                "method: expected one that exchanges tensors before round 1, found "
                f"{self.config.method!r}"
            )
        with seeded(self.config.seed, "exchange", round_=step, client=self.data.card.client):
            tensors = {name: tensor.to(self.data.device) for name, tensor in inbox.items()}
            info = RoundInfo(run, 0, "")
            return self.method.exchange(self.data, self.config, info, step, tensors)

    @property
    def weight(self) -> int:
        """The client's weight in the mean: its nodes, its labelled training nodes, or 1 under
        differential privacy.
        """
        # Why (decision 9): a weight by nodes would change the sensitivity and reveal the size.
        if self.config.privacy.dp != "none":
            return 1
        if self.config.aggregate_weight == "labelled":
            return int((self.data.train_labels >= 0).sum())
        return self.data.num_nodes

    @property
    def smooth(self) -> Callable[[Tensor], Tensor] | None:
        """Smooths [n, C] deployed probabilities; None without `smoothing`."""
        if self.config.smoothing == "none":
            return None
        from dance_flwr.federation.client.smoothing import correct_and_smooth

        return partial(correct_and_smooth, data=self.data)

    def reading_votes(self) -> list[int]:
        """Return `ClientData.reading_votes`; empty under differential privacy."""
        # Why (decision 18): votes count validation nodes exactly, and no budget covers them.
        return [] if self.config.privacy.dp != "none" else self.data.reading_votes()

    def predict(self, info: RoundInfo, nodes: Tensor) -> dict[str, Tensor]:
        """Return [m, C] probabilities of nodes per view: the method's, smoothed as configured.

        With own models, "deployed" is the mixture; "global" and a view per kind are added.

        Parameters
        ----------
        nodes : [m] int64, distinct
        """
        smooth = self.smooth
        # Smoothing spreads the predictions of all nodes over the graph.
        wanted = torch.arange(self.data.num_nodes, device=self.data.device) if smooth else nodes
        views = self.method.predict(self.model, self.data, self.config, info, wanted)
        # The server refuses other views.
        if unknown := views.keys() - {*self.spec.views, "deployed"}:
            raise ValueError(f"expected the views of the method's spec, found {sorted(unknown)}")
        if smooth:
            views["deployed"] = smooth(views["deployed"])
            views = {name: probs[nodes] for name, probs in views.items()}
        if self.own is None:
            return views
        from dance_flwr.nn.mixture import Mixture

        by_kind = {kind: self.own_probs(kind, self.own, info.run) for kind in self.own.states}
        shared, chosen = views["deployed"], self.own.kind
        mixture = Mixture(chosen, by_kind[chosen], self.own.share)
        mixed = {"deployed": mixture.of(shared, nodes), "global": shared}
        return views | mixed | {kind: probs[nodes] for kind, probs in by_kind.items()}

    def mixture(self) -> "Mixture | None":
        """Return the own model's predictions for all nodes, and its share; None without one."""
        if (own := self.own) is None:
            return None
        from dance_flwr.nn.mixture import Mixture

        return Mixture(own.kind, self.own_probs(own.kind, own), own.share)

    def own_probs(self, kind: str, model: "OwnModel", run: str = "own") -> Tensor:
        """Return an own model's smoothed predictions for all nodes; [n, C]."""
        from dance_flwr.federation.client.own_models import kind_config, tuning_run

        single = Client(self.data, kind_config(self.config, kind))
        single.load(model.states[kind])
        nodes = torch.arange(self.data.num_nodes, device=self.data.device)
        return single.predict(RoundInfo(tuning_run(run), 0, "", final=True), nodes)["deployed"]

    def validate(self, state: Mapping[str, Tensor], info: RoundInfo) -> dict[str, Counts]:
        """Count hits on the validation nodes; on none of them under differential privacy."""
        self.load(state)
        nodes = self._countable(validated_nodes(self.data, self.config))
        # Why counted on the host (decision 31): a GPU launches a dozen kernels for it.
        views, labels = moved((self.predict(info, nodes), self.data.labels[nodes]), HOST)
        return {"val": count(views, labels)}

    def finish(self, state: Mapping[str, Tensor], info: RoundInfo) -> dict[str, Counts]:
        """Count hits of the final model on validation and test nodes, and write the evidence.

        Under differential privacy the returned counts are 0; `measured.json`, which stays with the
        client, always has those of its test nodes.
        """
        self.load(state)
        info = replace(info, final=True, smooth=self.smooth, mixture=self.mixture())
        parts = {name: labelled_nodes(self.data, code) for name, code in _SPLITS.items()}
        views = self.predict(info, torch.cat(list(parts.values())))
        self.method.finish(self.model, self.data, self.config, info)
        sizes = [nodes.numel() for nodes in parts.values()]
        split = {name: torch.split(probs, sizes) for name, probs in views.items()}
        counts = {}
        for i, (name, nodes) in enumerate(parts.items()):
            probs, labels = {view: each[i] for view, each in split.items()}, self.data.labels[nodes]
            if name == "test":
                test, card = count({"deployed": probs["deployed"]}, labels), self.data.card
                Measured.of(test, card).keep(self.data.folder, info.run)
            shown = {view: self._countable(each) for view, each in probs.items()}
            counts[name] = count(shown, self._countable(labels))
            # Why (decision 9): sums of exact probabilities, which no budget covers.
            if self.config.privacy.dp == "none":
                # On the host: hundreds of small sums, whose order is fixed there.
                sums = _CALIBRATION[name](*moved((probs["deployed"], labels), HOST))
                counts[name] = replace(counts[name], calibration=sums)
        return counts

    def _countable(self, nodes: Tensor) -> Tensor:
        """Return the nodes, or rows of nodes, that may be counted in a reply: all or none."""
        # Why (decision 9): decided at the client, as a server may ask for any validation.
        return nodes[:0] if self.config.privacy.withholds_numbers else nodes

    def seal(self, run: str) -> str:
        """Return the hash of the evidence of a run; "" if the method keeps none."""
        return self.method.seal(self.data, run) if isinstance(self.method, SealingMethod) else ""


def open_client(folder: Path, config: RunConfig, device: torch.device | None = None) -> Client:
    """Open a client's folder; cached per process and device until the folder is prepared again,
    or until the process has half of the machine's memory and opens another one.

    Parameters
    ----------
    device : where the client computes; None = as `pick_device` chooses
    """
    torch.set_num_threads(config.torch_threads)
    return _client(folder, file_version(folder / CARD), config, device or pick_device(config))


def close_clients() -> None:
    """Close all clients and free their memory on CUDA devices."""
    from dance_flwr.nn.captured import forget_captured  # few processes capture epochs

    for opened in (_client, _data, _model):  # clients refer to the other two
        opened.cache_clear()
    forget_captured()
    torch.cuda.empty_cache()


@cache
def _client(folder: Path, version: Hashable, config: RunConfig, device: torch.device) -> Client:
    own = psutil.Process().memory_info()
    if own.rss - getattr(own, "shared", 0) > limits().memory:
        close_clients()
    # Data are cached separately, so that runs with other settings share them.
    data = _data(folder, version, device, config.split_mode == "inductive", reading_of(config))
    return Client(data, config)


@cache
def _data(
    folder: Path, version: Hashable, device: torch.device, inductive: bool, reading: ReadingConfig
) -> ClientData:
    return ClientData(folder, device, inductive, reading)


@lru_cache(maxsize=4)
def _model(shape: ModelShape, config: RunConfig, device: torch.device) -> nn.Module:
    return get_spec(config.method).make_client().build(shape, config).to(device)
