"""The client side of the selected cores."""

from typing import ClassVar

from torch import Tensor

from dance_flwr.baselines.condensation.cache import cache_key, load_or_compute
from dance_flwr.baselines.condensation.client import site_quotas
from dance_flwr.baselines.selected_core.rules import RULES, select_core
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.data.text.usage import note_evidence
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import generator


class SelectedCore(PlainMethod):
    """The plain network on a core that is selected once, before round 1, or in every round.

    Attributes
    ----------
    rule : a key of `RULES`
    rotates : whether every round selects a core of its own
    """

    rule: ClassVar[str]
    rotates: ClassVar[bool] = False

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of the core's nodes on the subgraph that they induce."""
        report = Report()
        with report.phase("nodes"):
            moment = info.round if self.rotates else 0
            key = cache_key(data, config) | {"rule": self.rule, "round": moment}
            arrays = load_or_compute(
                data.folder,
                info.run,
                key,
                data.device,
                lambda: {"core": self.select(data, config, moment)},
            )
            core = arrays["core"]
        chunks = data.table.chunks_of.take(core).index.cpu().numpy()
        note_evidence(run_folder(data.folder, info.run), info.round, chunks)
        report.counts |= {"condensed-nodes": core.numel(), "evidence-supervised": core.numel()}
        report.counts |= {
            "evidence-chunks": len(chunks),
            "evidence-tokens": int(data.bank.tokens[chunks].sum()),
        }
        with report.phase("train"):
            induced = operator(
                model.backbone.operator, *data.training_graph.induced_edges(core), core.numel()
            )
            labels = data.train_labels[core]
            report.loss = train_on(model, data.features[core], induced, labels, config, info.round)
        return report

    def select(self, data: ClientData, config: RunConfig, moment: int = 0) -> Tensor:
        """Return the core, [K] int64 in ascending order.

        Parameters
        ----------
        moment : the round whose core it is, 0 for that of all rounds
        """
        quotas, client = site_quotas(data, config), data.card.client
        draws = generator(config.seed, f"{self.rule}-core", round_=moment, client=client)
        return select_core(self.points(data), data.train_labels, quotas, RULES[self.rule], draws)

    def points(self, data: ClientData) -> Tensor:
        """Return P^2 X, the space in which the rule measures; [n, d]."""
        hop = data.training_graph.operator("gcn")
        return hop @ (hop @ data.features)


class RandomCore(SelectedCore):
    """Selects uniformly at random within each class."""

    rule = "random"

    def points(self, data: ClientData) -> Tensor:
        """Return X, as nothing is measured; [n, d]."""
        return data.features


class RotatingCore(RandomCore):
    """Selects as `RandomCore`, anew in every round; `state.npz` holds the last core."""

    rotates = True


class HerdingCore(SelectedCore):
    """Selects nodes whose running mean follows the mean of their class."""

    rule = "herding"


class KCenterCore(SelectedCore):
    """Selects nodes that cover their class: nearest to the mean, then farthest from the others."""

    rule = "k-center"
