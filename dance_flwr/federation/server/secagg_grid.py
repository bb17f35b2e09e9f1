"""Secure aggregation at the server: a Grid that returns nothing but the sum of all replies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation import secagg_masks
from dance_flwr.federation.flower import (
    MAIN_CONFIGS_RECORD,
    MAIN_PARAMS_RECORD,
    LegacyContext,
    WorkflowKey,
)
from dance_flwr.federation.secagg_request import request_digest
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.server.ledger import Ledger
from dance_flwr.federation.server.membership import Member, missing_numbers
from dance_flwr.federation.server.reply_checks import MOST_NODES, total_fault
from dance_flwr.federation.server.secagg_workflow import Capture, SumWorkflow
from dance_flwr.federation.server.sizes import Sizes
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.privacy.dp import fewest_clients, update_bound
from dance_flwr.privacy.vectors import (
    MetricLayout,
    SumFormat,
    decode_integers,
    decode_update,
    shares_needed,
    sum_format,
)


class SecureGrid(FederationGrid):
    """A FederationGrid that sums the replies to TRAIN and EVALUATE under masks.

    A strategy receives one reply for all clients: the weighted mean of their models and the sum of
    their metrics. Any strategy that needs means only works unchanged; `check_method` refuses the
    others.

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
        self._nodes = MOST_NODES  # of all clients

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, sum under masks, and return one reply for all clients; queries pass unchanged.

        Raises
        ------
        QuorumError : too few clients are left to remove the masks
        """
        sent = list(messages)
        if not sent or sent[0].metadata.message_type not in (
            keys.TRAIN,
            keys.EVALUATE,
        ):
            return super().send_and_receive(sent, timeout=timeout)
        return [self._sum(sent, timeout)]

    def author(self, reply: Message) -> int | None:
        """Return None: a reply holds the sum over all clients."""
        return None

    def sizes(
        self, past: Sizes, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> Sizes:
        """Ask for weight, nodes and tokens under masks, once in a run; return each sum."""
        if past:
            return past
        batch = [wire.weigh(node, config) for node in self._client_of_node]
        total = wire.metrics_of(self._sum(batch, timeout, keys.WEIGH).content)
        if keys.NODES not in total:
            raise QuorumError(missing_numbers(len(batch)))
        _demand(total_fault(total, keys.WEIGH, self._config))
        self.total_weight, self._nodes = int(total[keys.WEIGHT]), int(total[keys.NODES])
        LOG.info(
            "%d clients under secure aggregation: %d nodes in all", len(schemas), total[keys.NODES]
        )
        return {
            "nodes_per_client": {None: total[keys.NODES]},
            "encoder_tokens": {None: total[keys.ENCODER_TOKENS]},
        }

    def restore(self, sizes: Sizes, total_weight: int) -> None:
        """Take up a run; its masked counts are bounded by the nodes of all clients as before."""
        super().restore(sizes, total_weight)
        self._nodes = sizes["nodes_per_client"][None]

    def _sum(self, sent: Sequence[Message], timeout: float | None, task: str = "") -> Message:
        task = task or sent[0].metadata.message_type
        norm = float(wire.config_of(sent[0]).get(keys.CLIPPING_NORM, self._settings.clipping_norm))
        bound = update_bound(self._config, norm)
        form = sum_format(len(sent), self._config.upload_precision)
        options: dict[str, Any] = {
            keys.TASK: task,
            keys.TOTAL_WEIGHT: self.total_weight,
            keys.UPDATE_RANGE: bound,
            keys.LEVELS: form.levels,
            keys.BITS: form.bits,
            keys.DIGIT_BITS: form.digit_bits,
        }
        contents = {
            m.metadata.dst_node_id: RecordDict(
                {**m.content, keys.SECURE_SUM: ConfigRecord(options)}
            )
            for m in sent
        }
        capture = Capture(list(contents))
        # Never fewer than the noise is calibrated for, even if some were absent from the start.
        threshold = max(
            shares_needed(len(sent), self._settings.threshold), fewest_clients(self._config)
        )
        asked = request_digest(next(iter(contents.values())), self._config)
        workflow = SumWorkflow(contents, threshold, form, timeout, asked)
        workflow(_Stage(self), self._context(capture))  # type: ignore[arg-type]
        return self._reply(sent[0], capture, form, bound)

    def _context(self, capture: Capture) -> LegacyContext:
        self._round += 1
        context = LegacyContext(Context(self.run.run_id, 0, {}, RecordDict(), {}), strategy=capture)
        context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord(
            {WorkflowKey.CURRENT_ROUND: self._round}
        )
        context.state.array_records[MAIN_PARAMS_RECORD] = arrays_of({})
        return context

    def _reply(self, request: Message, capture: Capture, form: SumFormat, bound: float) -> Message:
        """Return one reply for all clients: weighted mean and summed metrics."""
        layouts = [dict(layout) for layout in capture.layouts]
        clients = len(self._client_of_node)
        omitted = any([layout.pop(keys.OMITTED, True) for layout in layouts])
        complete = capture.clients == clients and not omitted
        if any(layout != layouts[0] for layout in layouts):
            raise UserError(
                "secure aggregation: expected the same metrics from all clients, found different "
                "names; install the same version on all of them"
            )
        parts: Any = [layouts[0][key] for key in (keys.NAMES, keys.LENGTHS, keys.MICRO)]
        numbers = MetricLayout(*map(tuple, parts))
        total = capture.total(form)
        kind, has_model = request.metadata.message_type, keys.ARRAYS in request.content
        task = kind if has_model else keys.WEIGH
        start = wire.model_of(request) if task == keys.TRAIN else {}
        place = sum(tensor.numel() for tensor in start.values())
        records: dict[str, Any] = {}
        # Nobody knows the weight of a client that dropped out: it counts as one of mean weight.
        present = capture.clients / clients
        metrics: dict[str, Any] = {keys.WEIGHT: round(self.total_weight * present)}
        if complete:
            metrics = numbers.unpack(decode_integers(total[place:], form))
            if task != keys.WEIGH:
                most = self.total_weight if task == keys.TRAIN else self._nodes
                _demand(total_fault(metrics, task, self._config, most))
        else:
            LOG.warning("%d of %d clients in a sum: numbers are hidden", capture.clients, clients)
        if start:
            mean = total[:place].astype(np.float64) * (2 / form.levels)
            state = decode_update(mean, start, present, bound)
            records[keys.ARRAYS] = arrays_of(state)
        if keys.LOSS in metrics:
            metrics[keys.LOSS] /= metrics[keys.WEIGHT]
        records[keys.METRICS] = MetricRecord(metrics)
        return Message(RecordDict(records), reply_to=request)


_FALSE = (
    "secure aggregation: {}: a client is broken or lies, and under masks nobody sees which; find "
    "it by a round without privacy.secure-aggregation"
)


def _demand(fault: str) -> None:
    """Raise for a sum that honest clients cannot have sent together.

    Raises
    ------
    UserError : there is a fault
    """
    if fault:
        raise UserError(_FALSE.format(fault))


def federate(
    grid: Grid, members: Sequence[Member], config: RunConfig, ledger: Ledger
) -> FederationGrid:
    """Return the Grid of these members, with secure aggregation if the run asks for it."""
    client_of_node = {member.node: member.client for member in members}
    if config.privacy.secure_aggregation:
        return SecureGrid(grid, client_of_node, config, ledger)
    return FederationGrid(grid, client_of_node, config, ledger)


@dataclass
class _Stage:
    """The Grid of one stage: returns every reply, errors included, and counts bytes.

    An error says whose it is: that of a shortfall is made of them.
    """

    federation: SecureGrid

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return [
            wire.with_error(
                reply,
                reply.error.code,
                f"client {self.federation.client_of(reply)}: {str(reply.error.reason).strip()}",
            )
            if reply.has_error()
            else reply
            for reply in self.federation.exchange(list(messages), timeout)
        ]
