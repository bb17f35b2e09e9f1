"""The client side of the selected cores."""

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.methods.condensation.budget import training_quotas
from dance_flwr.methods.condensation.cache import decided_by, kept
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.methods.selected_core.rules import RULES, select_core
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import generator


class SelectedCore(PlainMethod):
    """The plain network on a core that is selected before round 1 and never again."""

    rule: str

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of the core's nodes on the subgraph that they induce."""
        report = Report()
        with report.phase("nodes"):
            made_from = decided_by(site, config) | {"rule": self.rule}
            found = kept(
                site.folder,
                info.run,
                made_from,
                site.device,
                lambda: {"core": self.select(site, config)},
            )
            core = found["core"]
        chunks = site.table.chunks_of.take(core).index.cpu().numpy()
        report.counts |= {"condensed-nodes": core.numel(), "evidence-supervised": core.numel()}
        report.counts |= {
            "evidence-chunks": len(chunks),
            "evidence-tokens": int(site.bank.tokens[chunks].sum()),
        }
        with report.phase("train"):
            induced = operator(
                model.backbone.operator, *site.training_graph.induced(core), core.numel()
            )
            labels = site.train_labels[core]
            report.loss = train_on(
                model, site.table.nodes[core], induced, labels, config, info.round
            )
        return report

    def select(self, site: Site, config: RunConfig) -> Tensor:
        """Return the core, [K] int64 in ascending order."""
        graph, labels = site.training_graph, site.train_labels
        quotas = training_quotas(
            labels, int(graph.visible.sum()), len(site.card.class_names), config.condensation_ratio
        )
        hop = graph.operator("gcn")
        draw = generator(config.seed, f"{self.rule}-core", client=site.card.client)
        return select_core(hop @ (hop @ site.table.nodes), labels, quotas, RULES[self.rule], draw)


class RandomCore(SelectedCore):
    """Nodes drawn evenly within each class."""

    rule = "random"


class HerdingCore(SelectedCore):
    """Nodes whose running mean follows the mean of their class."""

    rule = "herding"


class KCenterCore(SelectedCore):
    """Nodes that cover their class: the first nearest to its mean, each next the farthest from
    those chosen.
    """

    rule = "k-center"
