"""Seconds and bytes per round with and without secure aggregation, by number of clients.

    python benchmarks/secagg.py [--clients 5 10 20]

Clients answer one after the other in this process with an untrained model of the given size, so
that only the protocol is measured. Both variants run in the same process.
"""

import argparse
import logging
import statistics
import time
from typing import Any

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from dance_flwr.config.tree import parse
from dance_flwr.federation.client.secagg_mod import secure_sum
from dance_flwr.federation.server.grid import FederationGrid
from dance_flwr.federation.server.ledger import Ledger
from dance_flwr.federation.server.secagg_grid import SecureGrid
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.simulation.in_process import InProcessGrid


def idle_app() -> ClientApp:
    """Return a client that answers with the model that it received."""
    app = ClientApp()

    @app.train(mods=[secure_sum])
    def train(message: Message, context: Context) -> Message:
        metrics: dict[str, Any] = {keys.WEIGHT: 100}
        masked_sum = message.content.config_records.get(keys.SECURE_SUM)
        if masked_sum is not None and masked_sum[keys.TASK] == keys.WEIGH:
            metrics |= {keys.NODES: 100, keys.ENCODER_TOKENS: 1000}
            return Message(RecordDict({keys.METRICS: MetricRecord(metrics)}), reply_to=message)
        metrics |= {keys.LOSS: 0.5, **{f"count-{i}": i for i in range(12)}}
        arrays: ArrayRecord = message.content.array_records[keys.ARRAYS]
        records = {keys.ARRAYS: arrays, keys.METRICS: MetricRecord(metrics)}
        return Message(RecordDict(records), reply_to=message)

    return app


def seconds_and_bytes(
    clients: int, entries: int, secure: bool, rounds: int
) -> tuple[list[float], float]:
    """Return the seconds of each round, and the bytes up per client and round."""
    config = parse({"clients": clients, "privacy.secure-aggregation": secure})
    inner, nodes = (
        InProcessGrid(idle_app(), {}, clients),
        {node + 1: node for node in range(clients)},
    )
    ledger = Ledger()
    grid = (SecureGrid if secure else FederationGrid)(inner, nodes, config, ledger)
    grid.sizes([], {}, 60.0)
    grid.traffic.take()
    arrays, seconds = arrays_of({"weight": torch.zeros(entries)}), []
    for _ in range(rounds):
        content = RecordDict({keys.ARRAYS: arrays, keys.CONFIG: ConfigRecord({})})
        start = time.perf_counter()
        grid.send_and_receive(
            [Message(content, node, MessageType.TRAIN) for node in nodes], timeout=60.0
        )
        seconds.append(time.perf_counter() - start)
    return seconds, sum(grid.traffic.take()[1].values()) / clients / rounds


def main() -> None:
    """Print one row per number of clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--entries", type=int, default=352_634, help="weights of the model")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(f"{options.entries:,} weights, {options.rounds} rounds: median (least, most)")
    headings = (
        "clients",
        "plain s",
        "masked s",
        "added s per client",
        "plain kB up",
        "masked kB up",
    )
    print("{:>8} {:>9} {:>24} {:>19} {:>12} {:>13}".format(*headings))
    for clients in options.clients:
        plain, plain_bytes = seconds_and_bytes(clients, options.entries, False, options.rounds)
        masked, masked_bytes = seconds_and_bytes(clients, options.entries, True, options.rounds)
        low, middle, high = min(masked), statistics.median(masked), max(masked)
        added = (middle - statistics.median(plain)) / clients
        print(
            f"{clients:>8} {statistics.median(plain):>9.3f} {middle:>8.2f} ({low:.2f}, "
            f"{high:.2f}) {added:>19.3f} {plain_bytes / 1e3:>12.1f} {masked_bytes / 1e3:>13.1f}"
        )


if __name__ == "__main__":
    main()
