"""Differential privacy at the server: sampling, clipping norm, noise on the mean."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dance_flwr.config.sections import FLOAT32
from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.privacy.dp import (
    ClippingNorm,
    draw_clients,
    protect_mean,
    samples_poisson,
    update_bound,
)
from dance_flwr.federation.privacy.mechanism import clip
from dance_flwr.federation.wire import keys
from dance_flwr.methods.server_side import State, Upload


class RoundPrivacy:
    """The server's part of differential privacy; without any, nothing changes.

    Attributes
    ----------
    norm : what updates are clipped to, C
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self.norm = ClippingNorm(config)

    @property
    def bound(self) -> float:
        """R, the largest change of a weight in this round."""
        return update_bound(self._config, self.norm.value)

    def sample(self, nodes: Sequence[int], round_: int) -> list[int] | None:
        """Return the nodes of a round under Poisson sampling; None keeps Flower's sampling."""
        # Why (decision 9): amplification is credited for independent draws alone.
        if not samples_poisson(self._config):
            return None
        return draw_clients(nodes, self._config, round_)

    def clip(self, uploads: Sequence[Upload], start: State) -> list[Upload]:
        """Return uploads whose updates are no longer than C, where the server adds the noise.

        A client clips its own update before it rounds it; what counts is what the server has read.
        float32 and masked updates are left as their clients clipped them.
        """
        # Why (decision 14): a client that lies about its norm is clipped after dequantisation.
        if self._config.privacy.dp != "central" or self._config.upload_precision == FLOAT32:
            return list(uploads)
        return [
            upload
            # A masked sum cannot be clipped; its clients did.
            if upload.client is None
            else replace(upload, state=clip(upload.state, start, self.norm.value)[0])
            for upload in uploads
        ]

    def protect(self, mean: State, metrics: Mapping[str, Any], round_: int) -> State:
        """Return the mean of a round with the server's noise, and adapt the clipping norm."""
        # The norm before it adapts: this round's updates were clipped to it. Weights are 1, so that
        # their sum is the number of clients (decision 9).
        clients, norm = int(metrics[keys.WEIGHT]), self.norm.value
        if keys.UNCLIPPED in metrics:
            self.norm.update(metrics[keys.UNCLIPPED], clients, round_)
        return protect_mean(mean, self._config, norm=norm, round_=round_, clients=clients)
