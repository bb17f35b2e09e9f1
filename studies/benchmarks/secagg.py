"""Seconds and bytes per round with and without secure aggregation, by number of clients.

    python studies/benchmarks/secagg.py [--clients 5 10 20]

Clients answer one after the other in this process with an untrained model of the given size, so
that only the protocol is measured, in seconds of processor time. The variants (plain, masked,
masked with signatures) take turns round by round, and the ratio is that of a signed round to the
masked one beside it.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
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
from dance_flwr.deploy.certificates import make_key, write_peer_keys
from dance_flwr.federation.secagg.client import secure_sum
from dance_flwr.federation.server.grid import FederationGrid, SecureGrid
from dance_flwr.federation.server.message_log import MessageLog
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.metrics import COUNTS, PHASES
from dance_flwr.runs.simulation.in_process import InProcessGrid


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
        metrics |= {keys.LOSS: 0.5, **dict.fromkeys(COUNTS, 1)}
        metrics |= {keys.seconds_of(phase): 0.5 for phase in PHASES}
        arrays: ArrayRecord = message.content.array_records[keys.ARRAYS]
        records = {keys.ARRAYS: arrays, keys.METRICS: MetricRecord(metrics)}
        return Message(RecordDict(records), reply_to=message)

    return app


def node_configs(clients: int, folder: Path | None) -> dict[int, dict[str, Any]]:
    """Return the configuration of each node, with keys if there is a folder for them."""
    configs: dict[int, dict[str, Any]] = {
        client + 1: {keys.PARTITION_ID: client, keys.NUM_PARTITIONS: clients}
        for client in range(clients)
    }
    if folder:
        public = [make_key(folder / f"{clients}-{client}.key") for client in range(clients)]
        write_peer_keys(folder / f"{clients}-peer-keys", public)
        for node, config in configs.items():
            config[keys.SIGNING_KEY] = str(folder / f"{clients}-{node - 1}.key")
            config[keys.PEER_KEYS] = str(folder / f"{clients}-peer-keys")
    return configs


class Rounds:
    """Rounds of one variant; each call runs one and returns its seconds.

    Parameters
    ----------
    configs : configuration of each node; secure : with masks
    """

    def __init__(
        self, configs: Mapping[int, Mapping[str, Any]], entries: int, *, secure: bool
    ) -> None:
        config = parse(
            {
                "method": "fedavg-full",
                "clients": len(configs),
                "privacy.secure-aggregation": secure,
            }
        )
        inner = InProcessGrid(idle_app(), {}, configs)
        kind: Callable[..., FederationGrid] = SecureGrid if secure else FederationGrid
        nodes = {node: node - 1 for node in configs}
        self._grid, self._nodes, self._done = kind(inner, nodes, config, MessageLog()), nodes, 0
        if secure:
            self._grid.sizes({}, [], {}, 60.0)  # the total weight, of which each sends its share
        self._grid.traffic.take()
        self._arrays = arrays_of({"weight": torch.zeros(entries)})

    def __call__(self) -> float:
        """Run a round; return its seconds of processor time."""
        content = RecordDict({keys.ARRAYS: self._arrays, keys.CONFIG: ConfigRecord({})})
        start = time.process_time()
        batch = [Message(content, node, MessageType.TRAIN) for node in self._nodes]
        self._grid.send_and_receive(batch, timeout=60.0)
        self._done += 1
        return time.process_time() - start

    def bytes_up(self) -> float:
        """Return the bytes up per client and round."""
        return sum(self._grid.traffic.take()[1].values()) / len(self._nodes) / self._done


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
    headings = ("clients", "plain s", "masked s", "signed s", "signed / masked")
    print("{:>8} {:>9} {:>20} {:>20} {:>20}".format(*headings), "    kB up: plain, masked, signed")
    with tempfile.TemporaryDirectory() as folder:
        for clients in options.clients:
            print(row(clients, options.entries, options.rounds, Path(folder)), flush=True)


def row(clients: int, entries: int, rounds: int, folder: Path) -> str:
    """Return the line of a number of clients."""
    variants = (
        Rounds(node_configs(clients, None), entries, secure=False),
        Rounds(node_configs(clients, None), entries, secure=True),
        Rounds(node_configs(clients, folder), entries, secure=True),
    )
    turns = [[variant() for variant in variants] for _ in range(rounds)]
    plain, masked, signed = (list(column) for column in zip(*turns, strict=True))
    ratios = [one / other for one, other in zip(signed, masked, strict=True)]
    sizes = ", ".join(f"{variant.bytes_up() / 1e3:.1f}" for variant in variants)
    spread = "".join(f" {_spread(values):>20}" for values in (masked, signed, ratios))
    return f"{clients:>8} {statistics.median(plain):>9.3f}{spread}     {sizes}"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}, {max(values):.2f})"


if __name__ == "__main__":
    main()
