"""A Grid that returns nothing but the sum of all replies, by secure aggregation."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError, UserError
from dance_flwr.federation.privacy.dp import update_bound
from dance_flwr.federation.secagg import masks
from dance_flwr.federation.secagg.request import SumOptions
from dance_flwr.federation.secagg.server import MaskedSum, masked_sum
from dance_flwr.federation.secagg.stage_checks import MIN_CLIENTS, clients_to_stay
from dance_flwr.federation.secagg.vectors import sum_format
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.server.membership import Member, missing_numbers
from dance_flwr.federation.server.message_log import MessageLog
from dance_flwr.federation.server.reply_checks import MAX_NODES, total_fault
from dance_flwr.federation.server.sizes import Sizes
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.methods.fixed_point import decode_update


class SecureGrid(FederationGrid):
    """A FederationGrid that sums the replies to TRAIN and EVALUATE under masks.

    A strategy receives one reply for all clients: the weighted mean of their models and the sum of
    their metrics. Any strategy that needs means only works unchanged; `check_method` refuses the
    others.
    """

    def __init__(
        self, grid: Grid, client_of_node: Mapping[int, int], config: RunConfig, log: MessageLog
    ) -> None:
        super().__init__(grid, client_of_node, config, log)
        # Before the first message: the server takes off the masks that its clients put on.
        masks.install()
        if (clients := len(client_of_node)) == clients_to_stay(clients, config) == MIN_CLIENTS:
            LOG.warning(
                "secure aggregation: expected all %d clients to stay, as fewer than %d may not be "
                "summed; a missing node ends the run: start it again and resume, or add a fourth "
                "client",
                clients,
                MIN_CLIENTS,
            )
        self._nodes = MAX_NODES  # of all clients

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, sum under masks, and return one reply for all clients; queries pass unchanged."""
        sent = list(messages)
        kind = sent[0].metadata.message_type if sent else ""
        if kind not in (keys.TRAIN, keys.EVALUATE):
            return super().send_and_receive(sent, timeout=timeout)
        return [self._sum(sent, kind, timeout)]

    def author(self, reply: Message) -> int | None:
        """Return None: a reply holds the sum over all clients."""
        return None

    def sizes(
        self, past: Sizes, schemas: Sequence[wire.Schema], config: Mapping[str, Any], timeout: float
    ) -> Sizes:
        """Ask for weight, nodes, tokens and votes under masks, once in a run; return the sums."""
        # Once in a run: the difference of two sums over different clients is a client's size.
        if past:
            return past
        batch = [wire.weigh(node, config) for node in self._client_of_node]
        total = wire.metrics_of(self._sum(batch, keys.WEIGH, timeout).content)
        if keys.NODES not in total:
            raise QuorumError(missing_numbers(len(batch)))
        self.total_weight, self._nodes = int(total[keys.WEIGHT]), int(total[keys.NODES])
        self.votes = list(total.get(keys.READING_VOTES, []))
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

    def _sum(self, sent: Sequence[Message], task: str, timeout: float | None) -> Message:
        """Return one reply for all clients: weighted mean and summed metrics."""
        privacy = self._config.privacy
        norm = float(wire.config_of(sent[0]).get(keys.CLIPPING_NORM, privacy.clipping_norm))
        bound = update_bound(self._config, norm)
        # Levels for all that are asked: the sum of fewer fits as well.
        form = sum_format(len(sent), self._config.upload_precision)
        options = SumOptions(task, self.total_weight, bound, form)
        exchange = partial(self._exchange_stage, timeout=timeout)
        total = masked_sum(sent, options, self._config, self.run.run_id, exchange)
        self.answered = total.clients
        # Nobody knows the weight of a client that dropped out: it counts as one of mean weight.
        present = total.clients / len(self._client_of_node)
        start = wire.model_of(sent[0]) if task == keys.TRAIN else {}
        size = sum(tensor.numel() for tensor in start.values())
        metrics = self._metrics(total, size, options)
        # The weight of a part of the clients is an estimate, wrong where they have none. An update
        # of zeros is theirs, or leaves the model as it is all the same. Never under differential
        # privacy: the noise of a round is not left out.
        if size and privacy.dp == "none" and not total.numbers[:size].any():
            metrics[keys.WEIGHT] = 0
        records: dict[str, Any] = {keys.METRICS: MetricRecord(metrics)}
        if start:
            mean = total.numbers[:size].astype(np.float64) * (2 / form.levels)
            records[keys.ARRAYS] = arrays_of(decode_update(mean, start, present, bound))
        return Message(RecordDict(records), reply_to=sent[0])

    def _metrics(self, total: MaskedSum, start: int, options: SumOptions) -> dict[str, Any]:
        """Return the summed metrics, or the weight alone where a client is missing."""
        clients = len(self._client_of_node)
        # Why (docs/privacy.md): the pads of a missing client stay in the numbers, which are then
        # uniform.
        if total.clients < clients or total.omitted:
            LOG.warning("%d of %d clients in a sum: numbers are hidden", total.clients, clients)
            return {keys.WEIGHT: round(self.total_weight * (total.clients / clients))}
        metrics = total.metrics(start, options.form)
        # Bounded by all clients together, as single numbers are hidden.
        weight = self.total_weight if options.task == keys.TRAIN else self._nodes
        if fault := total_fault(metrics, options.task, self._config, weight):
            raise UserError(
                f"secure aggregation: {fault}: a client is broken or lies, and under masks nobody "
                "sees which; find it by a round without privacy.secure-aggregation"
            )
        if keys.LOSS in metrics:
            metrics[keys.LOSS] /= metrics[keys.WEIGHT]
        return metrics

    def _exchange_stage(self, sent: list[Message], timeout: float | None) -> list[Message]:
        """Return every reply of a stage; an error says whose it is, as a shortfall lists them."""
        return [
            # Named here, as errors of all clients meet in one line of the shortfall.
            wire.with_error(
                reply,
                reply.error.code,
                f"client {self.client_of(reply)}: {str(reply.error.reason).strip()}",
            )
            if reply.has_error()
            else reply
            # Neither quorum nor retries: the threshold decides, and shares name who took part
            # (decision 10).
            for reply in self.exchange(sent, timeout)
        ]


def federate(
    grid: Grid, members: Sequence[Member], config: RunConfig, log: MessageLog
) -> FederationGrid:
    """Return the Grid of these members, with secure aggregation if the run asks for it."""
    client_of_node = {member.node: member.client for member in members}
    kind = SecureGrid if config.privacy.secure_aggregation else FederationGrid
    federation = kind(grid, client_of_node, config, log)
    for client in sorted({*range(config.clients)} - {*client_of_node.values()}):
        federation.leave_out(client, "no valid greeting at its start")
    return federation
