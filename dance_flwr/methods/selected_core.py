"""FedAvg on K real training nodes per client and the edges among them: what condensation must beat.

Each client picks its core once, K_c nodes of every class that its training nodes have (`condense.budget`), at random,
by herding (Welling 2009) or by k-center (Sener and Savarese 2018), and trains the plain network on the induced
subgraph. Herding and k-center measure in the space of P^2 X, P = D^-1/2 (A + I) D^-1/2 and X the text embeddings t_u,
and are deterministic. The public condensation code measures in the hidden space of a trained network instead; P^2 X is
what its matching network reads and needs no training.

Test accuracy of `random-core` on Cora at r = 8 / 4 / 2 %: 83.22 / 81.31 / 75.26 % here.
Test accuracy of `random-core` on CiteSeer at r = 8 / 4 / 2 %: 73.72 / 72.61 / 71.20 % here.
Test accuracy of `herding-core` on Cora at r = 8 / 4 / 2 %: 82.54 / 81.43 / 77.36 % here.
Test accuracy of `herding-core` on CiteSeer at r = 8 / 4 / 2 %: 74.08 / 73.56 / 72.87 % here.
Test accuracy of `k-center-core` on Cora at r = 8 / 4 / 2 %: 83.65 / 80.75 / 77.48 % here.
Test accuracy of `k-center-core` on CiteSeer at r = 8 / 4 / 2 %: 73.66 / 70.52 / 69.83 % here.
"""

from torch import Tensor

from dance_flwr.condense.budget import training_quotas
from dance_flwr.condense.coresets import RULES, select_core
from dance_flwr.condense.store import decided_by, kept
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.dance.propagation import operator
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.plain import PlainMethod, train_on
from dance_flwr.report import Report
from dance_flwr.seeding import generator
from dance_flwr.site import Site


class SelectedCore(PlainMethod):
    """The plain network on a core that is selected before round 1 and never again."""

    uplink = Uplink.SUM
    rule: str
    card: MethodCard

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of the core's nodes on the subgraph that they induce."""
        report = Report()
        with report.phase("nodes"):
            made_from = decided_by(site, config) | {"rule": self.rule}
            found = kept(site.folder, info.run, made_from, site.device, lambda: {"core": self.select(site, config)})
            core = found["core"]
        chunks = site.table.chunks_of.take(core).index.cpu().numpy()
        report.counts |= {"condensed-nodes": core.numel(), "evidence-supervised": core.numel()}
        report.counts |= {"evidence-chunks": len(chunks), "evidence-tokens": int(site.bank.tokens[chunks].sum())}
        with report.phase("train"):
            induced = operator(model.backbone.operator, *site.training_graph.induced(core), core.numel())
            labels = site.train_labels[core]
            report.loss = train_on(model, site.table.nodes[core], induced, labels, config, info.round)
        return report

    def select(self, site: Site, config: RunConfig) -> Tensor:
        """Return the core, [K] int64 in ascending order."""
        graph, labels = site.training_graph, site.train_labels
        quotas = training_quotas(labels, int(graph.visible.sum()), len(site.card.class_names), config.dance.ratio)
        hop = graph.operator("gcn")
        draw = generator(config.seed, f"{self.rule}-core", client=site.card.client)
        return select_core(hop @ (hop @ site.table.nodes), labels, quotas, RULES[self.rule], draw)


def _card(how: str, source: str) -> MethodCard:
    return MethodCard(
        condenses=True,
        trains_on=f"labelled training nodes chosen once {how}, on their induced subgraph",
        leaves_client="model parameters, counts, seconds",
        source=source,
    )


class RandomCore(SelectedCore):
    """Nodes drawn evenly within each class."""

    rule = "random"
    card = _card("at random", "the usual lower bound of graph condensation")


class HerdingCore(SelectedCore):
    """Nodes whose running mean follows the mean of their class."""

    rule = "herding"
    card = _card("by herding", "Welling 2009")


class KCenterCore(SelectedCore):
    """Nodes that cover their class: the first nearest to its mean, each next the farthest from those chosen."""

    rule = "k-center"
    card = _card("by k-center", "Sener and Savarese 2018")
