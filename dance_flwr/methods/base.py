"""What a federated method is: the contract between the apps and the plug-ins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from dance_flwr.config import RunConfig
from dance_flwr.dance.model import ModelShape
from dance_flwr.report import Report
from dance_flwr.site import Site


class Uplink(Enum):
    """What the server must see of the uploads: their weighted sum only, or each one."""

    SUM = "sum"
    EACH = "each"


@dataclass(frozen=True)
class RoundInfo:
    """Where in the run a client is.

    Attributes
    ----------
    run : name of the run, chosen by the server; names the client's folder of this run
    round : t, from 1; model_id : fingerprint of the global model that came with the message
    given : what the server sent beside the model, for this client alone
    first : the server still lacks what this client uploads once
    """

    run: str
    round: int
    model_id: str
    given: Mapping[str, Tensor] = field(default_factory=dict)
    first: bool = False


@dataclass(frozen=True)
class MethodCard:
    """What a reader of a table must know of a method.

    Attributes
    ----------
    condenses : it trains on K condensed nodes, so that `dance.ratio` matters; such a method leaves `core` [K] node
        numbers, or `condensed_labels` [K] classes, in the `state.npz` of its folder of the run
    trains_on : what its loss is taken over, in a few words
    leaves_client : all that a client sends, in a few words
    source : where the method is from
    server : name in `strategies.SERVERS` of the server side that it needs; empty = whatever `strategy` asks for
    evaluation : whose model is scored: the "global" one, or "personalised", each client's own
    """

    condenses: bool
    trains_on: str
    leaves_client: str
    source: str
    server: str = ""
    evaluation: str = "global"


class Method(Protocol):
    """One client method. Stateless: what survives a round is in the client's own folder."""

    uplink: Uplink
    card: MethodCard

    def build(self, shape: ModelShape, config: RunConfig) -> nn.Module:
        """Return the model; its float parameters are what is uploaded and averaged."""
        ...

    def train(self, model: Any, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Train `model` in place for one round; statistics in the report need `Uplink.EACH`."""
        ...

    def predict(self, model: Any, site: Site, config: RunConfig, info: RoundInfo) -> dict[str, Tensor]:
        """Return [n, C] probabilities per view; "deployed" is what counts."""
        ...

    def finish(self, model: Any, site: Site, config: RunConfig, info: RoundInfo) -> None:
        """Leave behind, in the client's folder, what the final model has to say."""
        ...


@runtime_checkable
class Exchanging(Protocol):
    """A method whose clients exchange tensors through the server before round 1; its server side asks for the steps."""

    def exchange(
        self, site: Site, config: RunConfig, info: RoundInfo, step: int, inbox: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what this client sends in `step`, from 0, given what the server sent it; `info.round` is 0.

        Asked again for a step, as after a lost connection, it must send the same.
        """
        ...
