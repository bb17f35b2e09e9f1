"""The client side of the selected cores."""

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.cache import cache_key, load_or_compute
from dance_flwr.methods.condensation.client import site_quotas
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.methods.selected_core.rules import RULES, select_core
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import generator


class SelectedCore(PlainMethod):
    """The plain network on a core that is selected once, before round 1."""

    rule: str

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of the core's nodes on the subgraph that they induce."""
        report = Report()
        with report.phase("nodes"):
            key = cache_key(site, config) | {"rule": self.rule}
            arrays = load_or_compute(
                site.folder,
                info.run,
                key,
                site.device,
                lambda: {"core": self.select(site, config)},
            )
            core = arrays["core"]
        chunks = site.table.chunks_of.take(core).index.cpu().numpy()
        report.counts |= {"condensed-nodes": core.numel(), "evidence-supervised": core.numel()}
        report.counts |= {
            "evidence-chunks": len(chunks),
            "evidence-tokens": int(site.bank.tokens[chunks].sum()),
        }
        with report.phase("train"):
            induced = operator(
                model.backbone.operator, *site.training_graph.induced_edges(core), core.numel()
            )
            labels = site.train_labels[core]
            report.loss = train_on(model, site.features[core], induced, labels, config, info.round)
        return report

    def select(self, site: Site, config: RunConfig) -> Tensor:
        """Return the core, [K] int64 in ascending order."""
        quotas, hop = site_quotas(site, config), site.training_graph.operator("gcn")
        points = hop @ (hop @ site.features)
        draws = generator(config.seed, f"{self.rule}-core", client=site.card.client)
        return select_core(points, site.train_labels, quotas, RULES[self.rule], draws)


class RandomCore(SelectedCore):
    """Selects uniformly at random within each class."""

    rule = "random"


class HerdingCore(SelectedCore):
    """Selects nodes whose running mean follows the mean of their class."""

    rule = "herding"


class KCenterCore(SelectedCore):
    """Selects nodes that cover their class: nearest to the mean, then farthest from the others."""

    rule = "k-center"
