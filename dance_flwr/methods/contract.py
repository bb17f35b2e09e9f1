"""The contract between the harness and a method's package.

A method is one `MethodSpec`, registered by name in `dance_flwr.config.plugins` or through the entry
point `dance_flwr.methods`. It names the client side (`Method`), the server side if the method needs
more than the weighted mean (`dance_flwr.methods.server_side.ServerSide`), its configuration
sections, its search space and its card. Reading a spec imports neither torch nor the two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dance_flwr.config.options import Section, Value
from dance_flwr.config.plugins import resolve
from dance_flwr.config.sections import ATTENTION, NONE

# Why (decision 13): for annotations alone. The configuration reads every spec, and must not load
# torch for it.
if TYPE_CHECKING:
    from torch import Tensor, nn

    from dance_flwr.client_data.client_data import ClientData
    from dance_flwr.config.tree import RunConfig
    from dance_flwr.methods.server_side import ServerSide
    from dance_flwr.metrics import Report
    from dance_flwr.nn.mixture import Mixture
    from dance_flwr.nn.model import ModelShape


# The paper's rules, which every method keeps unless it says otherwise.
PLAIN_READING = {"text_pooling": ATTENTION, "edge_gates": NONE, "class_prior": NONE}


class Uplink(Enum):
    """What the server needs of the uploads: their weighted sum alone, or each single one."""

    SUM = "sum"
    EACH = "each"


@dataclass(frozen=True)
class MethodCard:
    """Facts about a method that its row in a table must be read with.

    Attributes
    ----------
    condenses : whether it trains on K condensed nodes, so that `condensation-ratio` applies; such a
        method writes `core` [K] node numbers, or `condensed_labels` [K] classes, to `state.npz` in
        the client's folder of the run. A method whose core changes writes the last one
    trains_on : what its loss is computed on, in a few words
    leaves_client : everything that a client sends, in a few words
    source : publication
    evaluation : the model that is scored, "global" or "personalised" (each client's own)
    rotates : whether `condensation-ratio` decides how many labelled nodes a round supervises on the
        full graph; such a method condenses nothing, writes no core, and reports their number
    trains_on_all_labels : whether a method that condenses also takes its loss over every labelled
        node of the full local graph, in every round
    needs_llm : whether a run calls the language model of `llm.backend`
    """

    condenses: bool
    trains_on: str
    leaves_client: str
    source: str
    evaluation: str = "global"
    rotates: bool = False
    trains_on_all_labels: bool = False
    needs_llm: bool = False

    @property
    def by_ratio(self) -> bool:
        """Whether `condensation-ratio` applies, so that a table has one row per ratio."""
        return self.condenses or self.rotates


@dataclass(frozen=True)
class MethodSpec:
    """One method: everything that the harness needs to run, configure, tune and describe it.

    Attributes
    ----------
    client : a `Method` class, or "module:Class" of one, imported when a client is created
    uplink : what the server needs; `Uplink.SUM` allows secure aggregation
    server : a `ServerSide` class, or "module:Class" of one; if empty, the weighted mean followed by
        the step of `strategy`
    sections : configuration sections of its own, or shared with other methods
    views : names of the views that it predicts beside "deployed"
    deployed_views : returns the views that "deployed" is the mean of, given a configuration
    search : flat key -> candidate values of `dance-flwr tune`, beside those of every method
    label_reuse : whether it supports the key `label-reuse`
    reading : values of `text-pooling`, `edge-gates` and `class-prior` under "auto"
    keeps_evidence : whether clients store evidence, whose hash becomes part of the run's record;
        the client side is then a `SealingMethod`
    """

    card: MethodCard
    # Why (decision 13): sides are named by strings, so that reading a spec imports neither of them.
    client: str | type[Method]
    uplink: Uplink = Uplink.SUM
    server: str | type[ServerSide] = ""
    sections: tuple[type[Section], ...] = ()
    views: tuple[str, ...] = ()
    deployed_views: Callable[[RunConfig], Sequence[str]] = lambda config: ()
    search: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    label_reuse: bool = False
    # Why (decision 18): readings by agreement are keys for every method, but only DANCE prefers
    # them.
    reading: Mapping[str, str] = field(default_factory=lambda: dict(PLAIN_READING))
    keeps_evidence: bool = False

    def make_client(self) -> Method:
        """Return the client side.

        Raises
        ------
        UserError : the class cannot be imported
        """
        return resolve(self.client, "method")()  # type: ignore[no-any-return]

    def server_type(self) -> type[ServerSide]:
        """Return the class of the server side: the weighted mean unless the method brings its own.

        Raises
        ------
        UserError : the class cannot be imported
        """
        target = self.server or "dance_flwr.methods.server_side:ServerSide"
        return resolve(target, "server side of a method")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RoundInfo:
    """The round of a message, and what the server sent with it beside the model.

    Attributes
    ----------
    run : name of the run, chosen by the server; also the client's folder of this run
    round : t, from 1
    model_id : fingerprint of the global model that came with the message
    server_payload : tensors that the server sent beside the model, for this client only
    needs_initial_upload : whether the server still lacks what this client uploads once
    final : whether the model is the final one, which is deployed
    smooth : smoothing of the deployed probabilities of all nodes before they are scored,
        [n, C] -> [n, C]; set for the final model, None if there is none
    mixture : what the client's own model says, and its share; set for the final model, None without
        an own model
    """

    run: str
    round: int
    model_id: str
    server_payload: Mapping[str, Tensor] = field(default_factory=dict)
    # Why (decision 11): clients are stateless, so that the server asks until it has the upload. A
    # lost reply or an absent client costs no graph.
    needs_initial_upload: bool = False
    final: bool = False
    smooth: Callable[[Tensor], Tensor] | None = None
    mixture: Mixture | None = None


class Method(Protocol):
    """The client side of a method; it is stateless, and keeps files in the client's folder."""

    def build(self, shape: ModelShape, config: RunConfig) -> nn.Module:
        """Return the model; its float parameters are uploaded and averaged."""
        ...

    def train(self, model: Any, data: ClientData, config: RunConfig, info: RoundInfo) -> Report:
        """Train `model` in place for one round; statistics in the report need `Uplink.EACH`."""
        ...

    def predict(
        self, model: Any, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Return the class probabilities of distinct nodes by view; [m] int64 -> [m, C] each.

        The view "deployed" is the one that is scored.
        """
        ...

    def finish(self, model: Any, data: ClientData, config: RunConfig, info: RoundInfo) -> None:
        """Write the evidence of the final model to the client's folder."""
        ...


@runtime_checkable
class ExchangingMethod(Protocol):
    """A client side that exchanges tensors through the server before round 1, step by step."""

    def exchange(
        self,
        data: ClientData,
        config: RunConfig,
        info: RoundInfo,
        step: int,
        inbox: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """Return what this client sends in `step`, from 0, given what the server sent it.

        `info.round` is 0. A step that is repeated, as after a lost connection, must be answered
        with the same tensors.
        """
        ...


@runtime_checkable
class SealingMethod(Protocol):
    """A client side that keeps evidence in the client's folder of a run."""

    def seal(self, data: ClientData, run: str) -> str:
        """Return a salted hash of the evidence of a run, which reveals nothing of it."""
        ...


@runtime_checkable
class AskingMethod(Protocol):
    """A client side that calls a language model and can tell in advance how often."""

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client.

        No model is called and nothing is written. Calls that the client's cache will answer are
        included.
        """
        ...
