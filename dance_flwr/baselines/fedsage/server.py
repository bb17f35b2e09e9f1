"""The server side of FedSage+: generators are exchanged before round 1, then FedAvg."""

import numpy as np

from dance_flwr.baselines.fedsage.config import FedSageConfig
from dance_flwr.baselines.fedsage.exchange import GeneratorExchange
from dance_flwr.baselines.fedsage.neighgen.networks import Widths
from dance_flwr.methods.server_side import Channel, ServerSide

_EXCHANGED = "exchanged"


class FedSageServer(ServerSide):
    """FedAvg on augmented graphs, after the clients have trained their generators together.

    A run that is killed before the end of its first round repeats the exchange; one that is
    killed later does not.

    Attributes
    ----------
    memory : "exchanged" -> 1 after the exchange
    """

    def before_round(self, round_: int, channel: Channel) -> None:
        """Run the exchange, once."""
        settings = FedSageConfig.of(self.config)
        if settings.max_generated_per_node and _EXCHANGED not in self.memory:
            GeneratorExchange(settings, Widths.of(self.shape.text_dim, settings), channel).run()
            self.memory[_EXCHANGED] = np.ones(1, np.int64)
