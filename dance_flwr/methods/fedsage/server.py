"""The server side of FedSage+: before round 1 generators go round for gradients, then FedAvg."""

import numpy as np

from dance_flwr.methods.fedsage.config import FedSageConfig
from dance_flwr.methods.fedsage.exchange import GeneratorExchange
from dance_flwr.methods.fedsage.neighgen.networks import Widths
from dance_flwr.methods.server_side import Channel, ServerSide

_OVER = "exchanged"


class FedSageServer(ServerSide):
    """FedAvg on mended graphs, after the clients' generators have learnt from each other.

    A run that is killed before its first round is over exchanges again, one that is killed later
    does not.

    Attributes
    ----------
    memory : "exchanged" -> 1 after the exchange
    """

    def before_round(self, round_: int, channel: Channel) -> None:
        """Let the clients exchange their generators, once."""
        settings = FedSageConfig.of(self.config)
        if settings.most and _OVER not in self.memory:
            GeneratorExchange(settings, Widths.of(self.shape.text_dim, settings), channel).run()
            self.memory[_OVER] = np.ones(1, np.int64)
