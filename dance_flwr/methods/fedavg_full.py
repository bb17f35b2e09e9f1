"""FedAvg on the full local graphs, no condensation: the reference (McMahan et al. 2017; Kipf and Welling 2017).

Each client trains backbone and head on all its labelled training nodes. Uplink: the weighted mean of the parameters.
Deviations: Adam where the paper descends by plain gradients, started anew in each round.

Test accuracy of `fedavg-full` on Cora: 82.45 % in the DANCE paper, 87.69 % here.
Test accuracy of `fedavg-full` on CiteSeer: 75.28 % in the DANCE paper, 76.72 % here.
"""

from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.plain import PlainMethod, train_on
from dance_flwr.report import Report
from dance_flwr.site import Site


class FedAvgFull(PlainMethod):
    """A plain graph network on every node's text embedding t_u."""

    uplink = Uplink.SUM
    card = MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph",
        leaves_client="model parameters, counts, seconds",
        source="McMahan et al. 2017; Kipf and Welling 2017",
    )

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes."""
        report = Report()
        operator = site.training_graph.operator(model.backbone.operator)
        with report.phase("train"):
            report.loss = train_on(model, site.table.nodes, operator, site.train_labels, config, info.round)
        return report
