"""Secure aggregation at the server: a Grid that hands a strategy the sum of all replies, and
nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation import secagg_masks
from dance_flwr.federation.flower import (
    MAIN_CONFIGS_RECORD,
    MAIN_PARAMS_RECORD,
    FitIns,
    FitRes,
    LegacyContext,
    LegacyStrategy,
    Parameters,
    SecAggPlusWorkflow,
    WorkflowKey,
    WorkflowState,
    parameters_to_ndarrays,
)
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.server.ledger import Ledger
from dance_flwr.federation.server.membership import Member
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.privacy.dp import fewest_clients, update_bound
from dance_flwr.privacy.vectors import (
    Numbers,
    Vector,
    decode_integers,
    decode_update,
    levels_for,
    shares_needed,
    to_grid,
)

MODULUS = 2**32
STAGES = ("setup", "share keys", "collect masked vectors", "unmask")


@dataclass(frozen=True)
class _Proxy:
    """All that the workflow asks of a client."""

    node_id: int


class _Capture(LegacyStrategy):  # type: ignore[misc]
    """A legacy strategy that samples whom it is told and keeps what the workflow summed."""

    def __init__(self, nodes: Sequence[int]) -> None:
        super().__init__()
        self.nodes = nodes
        self.mean: Vector | None = None
        self.clients = 0
        self.layouts: list[ConfigRecord] = []

    def configure_fit(self, *_: Any) -> list[tuple[Any, FitIns]]:
        """Return the nodes; what they are sent is put in place by the workflow."""
        return [(_Proxy(node), FitIns(Parameters([], ""), {})) for node in self.nodes]

    def aggregate_fit(
        self, _: int, results: list[tuple[Any, FitRes]], __: Any
    ) -> tuple[None, dict[str, Any]]:
        """Keep the mean over the clients whose vectors are in the sum."""
        self.mean = np.asarray(
            parameters_to_ndarrays(results[0][1].parameters)[0], dtype=np.float64
        )
        self.clients = len(results)
        return None, {}


class SumWorkflow(SecAggPlusWorkflow):
    """Flower's SecAgg+ workflow, with two of its faults mended.

    Flower counts a client that dropped out before the masks were made among those whose masks must
    be taken off, for which nobody has shares: such a client is forgotten here. It goes on with the
    old model when too few are left; here that raises. Its legacy instructions are replaced by the
    app's own message.
    """

    def __init__(
        self, contents: Mapping[int, RecordDict], threshold: int, timeout: float | None
    ) -> None:
        super().__init__(
            num_shares=1.0,
            reconstruction_threshold=threshold,
            max_weight=1.0,
            clipping_range=1.0,
            quantization_range=levels_for(len(contents)),
            modulus_range=MODULUS,
            timeout=timeout,
        )
        self._contents = contents

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the four stages.

        Raises
        ------
        QuorumError : fewer clients are left than shares are needed; says in which stage and why
        """
        assert isinstance(context, LegacyContext)
        state = WorkflowState()
        steps = (
            self.setup_stage,
            self.share_keys_stage,
            self.collect_masked_vectors_stage,
            self.unmask_stage,
        )
        for name, step in zip(STAGES, steps, strict=True):
            try:
                enough = step(grid, context, state)
            except ValueError as error:  # shares that do not fit together
                raise QuorumError(f"secure aggregation, stage {name!r}: {error}") from None
            if not enough:
                raise QuorumError(self._shortfall(name, state))

    def setup_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect public keys; the app's messages take the place of the legacy instructions."""
        enough = super().setup_stage(grid, context, state)
        state.nid_to_fitins = {node: _copy(self._contents[node]) for node in state.active_node_ids}
        return enough and self._forget_absent(state)

    def share_keys_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect encrypted shares."""
        return super().share_keys_stage(grid, context, state) and self._forget_absent(state)

    def collect_masked_vectors_stage(self, grid: Grid, context: LegacyContext, state: Any) -> bool:
        """Collect masked vectors, through a Grid that notes the layouts that came with them."""
        return super().collect_masked_vectors_stage(_Noting(grid, context.strategy), context, state)  # type: ignore[arg-type]

    def _forget_absent(self, state: Any) -> bool:
        state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {
            node: near & state.active_node_ids
            for node, near in state.nid_to_neighbours.items()
            if node in state.active_node_ids
        }
        return bool(state.active_node_ids) and self._check_threshold(state)

    def _shortfall(self, stage: str, state: Any) -> str:
        reasons = sorted({str(getattr(error, "args", [error])[0]) for error in state.failures})
        why = f"; {'; '.join(reasons)}" if reasons else ""
        return (
            f"secure aggregation, stage {stage!r}: expected at least {state.threshold} of {len(self._contents)} "
            f"clients, found {len(state.active_node_ids)}{why}; the model of the last round stands"
        )


@dataclass
class _Noting:
    """Keeps the layouts of replies that pass."""

    grid: Any
    strategy: Any

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        self.strategy.layouts = [
            r.content.config_records[keys.SECURE_LAYOUT] for r in replies if not r.has_error()
        ]
        return replies


class SecureGrid(FederationGrid):
    """A FederationGrid that sums what clients reply to TRAIN and EVALUATE under masks.

    A strategy gets one reply, that of all clients together: the weighted mean of their models with
    the sum of their metrics. Any strategy that only takes means works on it unchanged;
    `check_method` has refused the others.

    Parameters
    ----------
    config : of the run
    """

    def __init__(
        self, grid: Grid, client_of_node: Mapping[int, int], config: RunConfig, ledger: Ledger
    ) -> None:
        super().__init__(grid, client_of_node, config, ledger)
        secagg_masks.install()
        self._settings = config.privacy
        self._round = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, sum under masks, and return the one reply of all; queries pass as they are.

        Raises
        ------
        QuorumError : too few clients are left to take the masks off
        """
        sent = list(messages)
        if not sent or sent[0].metadata.message_type not in (
            MessageType.TRAIN,
            MessageType.EVALUATE,
        ):
            return super().send_and_receive(sent, timeout=timeout)
        return [self._sum(sent, timeout)]

    def author(self, reply: Message) -> int | None:
        """Return None: a reply is that of all clients."""
        return None

    def sizes(
        self, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> dict[str, list[int]]:
        """Ask all clients for weight, nodes and tokens under masks; return the sums, each as a list
        of one.
        """
        batch = [wire.weigh(node, config) for node in self._client_of_node]
        total = wire.metrics_of(self._sum(batch, timeout, keys.WEIGH).content)
        self.total_weight = int(total[keys.WEIGHT])
        LOG.info(
            "%d clients under secure aggregation: %d nodes in all", len(schemas), total[keys.NODES]
        )
        return {
            "nodes_per_client": [total[keys.NODES]],
            "encoder_tokens": [total[keys.ENCODER_TOKENS]],
        }

    def _sum(self, sent: Sequence[Message], timeout: float | None, task: str = "") -> Message:
        task = task or sent[0].metadata.message_type
        norm = float(wire.config_of(sent[0]).get(keys.CLIPPING_NORM, self._settings.clipping_norm))
        bound = update_bound(self._config, norm)
        options: dict[str, Any] = {
            keys.TASK: task,
            keys.TOTAL_WEIGHT: self.total_weight,
            keys.LEVELS: levels_for(len(sent)),
        }
        options[keys.UPDATE_RANGE] = bound
        contents = {
            m.metadata.dst_node_id: RecordDict(
                {**m.content, keys.SECURE_SUM: ConfigRecord(options)}
            )
            for m in sent
        }
        capture = _Capture(list(contents))
        # Never fewer than noise is sized for, also where some were away from the start of the
        # round.
        threshold = max(
            shares_needed(len(sent), self._settings.threshold), fewest_clients(self._config)
        )
        SumWorkflow(contents, threshold, timeout)(_Stage(self), self._context(capture))  # type: ignore[arg-type]
        assert capture.mean is not None
        return self._reply(sent[0], capture, options[keys.LEVELS], bound)

    def _context(self, capture: _Capture) -> LegacyContext:
        self._round += 1
        context = LegacyContext(Context(self.run.run_id, 0, {}, RecordDict(), {}), strategy=capture)
        context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord(
            {WorkflowKey.CURRENT_ROUND: self._round}
        )
        context.state.array_records[MAIN_PARAMS_RECORD] = arrays_of({})
        return context

    def _reply(self, request: Message, capture: _Capture, levels: int, bound: float) -> Message:
        """Return the reply of all clients together."""
        first = dict(capture.layouts[0])
        if any(dict(layout) != first for layout in capture.layouts):
            raise UserError(
                "secure aggregation: expected the same metrics from all clients, found different names; do they all "
                "run the same version?"
            )
        numbers = Numbers(*(tuple(first[key]) for key in (keys.NAMES, keys.LENGTHS, keys.MICRO)))  # type: ignore[arg-type]
        assert capture.mean is not None
        total = to_grid(
            capture.mean * capture.clients, levels
        )  # the workflow divided: back to exact multiples
        trains = (
            request.metadata.message_type == MessageType.TRAIN and keys.ARRAYS in request.content
        )
        start = wire.model_of(request) if trains else {}
        place = sum(tensor.numel() for tensor in start.values())
        metrics = numbers.unpack(decode_integers(total[place:], capture.clients))
        records: dict[str, Any] = {}
        if start:
            shares = float(metrics[keys.WEIGHT]) / self.total_weight  # type: ignore[arg-type]
            state = decode_update(total, start, shares, bound)
            records[keys.ARRAYS] = arrays_of(state)
        if keys.LOSS in metrics:
            metrics[keys.LOSS] /= metrics[keys.WEIGHT]  # type: ignore[operator]
        records[keys.METRICS] = MetricRecord(metrics)  # type: ignore[arg-type]
        return Message(RecordDict(records), reply_to=request)


def federate(
    grid: Grid, members: Sequence[Member], config: RunConfig, ledger: Ledger
) -> FederationGrid:
    """Return the federation of these members, with masks or without as the run asks."""
    client_of_node = {member.node: member.client for member in members}
    if config.privacy.secure_aggregation:
        return SecureGrid(grid, client_of_node, config, ledger)
    return FederationGrid(grid, client_of_node, config, ledger)


@dataclass
class _Stage:
    """The Grid of one stage: replies as they come, errors and silence included, bytes counted."""

    federation: SecureGrid

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.federation.exchange(list(messages), timeout)


def _copy(content: RecordDict) -> RecordDict:
    return RecordDict(dict(content))
