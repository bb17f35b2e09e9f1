"""Ask the clients at the end of a run for final counts, and for the hashes of its record."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, MetricRecord

from dance_flwr.config.sections import PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import QuorumError
from dance_flwr.federation.server.deadline import timeout_of
from dance_flwr.federation.server.grid import FederationGrid
from dance_flwr.federation.server.membership import missing_numbers
from dance_flwr.federation.wire import configs, counts, keys
from dance_flwr.federation.wire import messages as wire
from dance_flwr.methods import final_views
from dance_flwr.metrics import Counts, Tokens


def final_counts(
    grid: FederationGrid,
    model_for: Callable[[int], ArrayRecord],
    common: Mapping[str, Any],
    round_: int,
    config: RunConfig,
) -> tuple[dict[int | None, dict[str, Counts]], dict[int | None, Tokens], dict[str, float]]:
    """Evaluate the final model at every client; return counts, and tokens of the run, by client.

    The third value is what personal models cost, a client on average: `seconds_personal` and
    `bytes_personal`; empty without them.

    This is the only time that test nodes are read. Under secure aggregation the only entry is
    None, the sums over all clients.
    """
    settings, timeout = configs.final_config(common, round_), timeout_of(config)
    costs: dict[str, float] = {}
    # Why not under differential privacy (decision 30): the losses are those of exact predictions.
    if PERSONAL[config.personal] and config.privacy.dp == "none":
        # For training as many rounds as the run had.
        asked, longest = configs.personal_config(common, round_), timeout * config.rounds
        sums, costs = _mixture_losses(grid, model_for, asked, longest)
        settings |= sums
    views = (*final_views(config), "deployed")
    nodes = grid.nodes.items()
    batch = [wire.evaluate(node, settings, model_for(client)) for node, client in nodes]
    by_client: dict[int | None, dict[str, Counts]] = {}
    tokens: dict[int | None, Tokens] = {}
    for reply in grid.send_and_receive(batch, timeout=timeout):
        metrics = wire.metrics_of(reply.content)
        # Under masks one missing client hides the numbers of all, and a result cannot do without.
        if keys.total_of("test") not in metrics:
            raise QuorumError(missing_numbers(len(batch)))
        by_client[client := grid.author(reply)] = {
            split: counts.read_counts(metrics, split, views) for split in ("val", "test")
        }
        tokens[client] = counts.read_tokens(metrics, wire.config_of(reply))
    return by_client, tokens, costs


def _mixture_losses(
    grid: FederationGrid,
    model_for: Callable[[int], ArrayRecord],
    config: Mapping[str, Any],
    timeout: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Ask every client to train its own models; return the sum of the losses of mixtures.

    With the number of validation nodes, as the final evaluation tells them to every client; and
    what it cost.
    """
    batch = [wire.evaluate(node, config, model_for(client)) for node, client in grid.nodes.items()]
    replies = grid.send_and_receive(batch, timeout=timeout)
    total = counts.sum_metrics(wire.metrics_of(reply.content) for reply in replies)
    if keys.LOSSES not in total:
        raise QuorumError(missing_numbers(len(batch)))
    sums = {keys.LOSSES: list(total[keys.LOSSES]), keys.SCORED_NODES: int(total[keys.WEIGHT])}
    moved = sum(len(array.data) for m in batch for array in wire.arrays_in(m).values())
    seconds = total[keys.seconds_of("train")]
    means = {"seconds_personal": seconds / len(batch), "bytes_personal": moved / len(batch)}
    return sums, means


def hashes(
    grid: FederationGrid,
    schemas: Sequence[wire.Schema],
    config: Mapping[str, Any],
    timeout: float,
    *,
    evidence: bool,
    own_data: bool,
) -> dict[str, dict[int, str]]:
    """Return what fixes each client's data and evidence, as the run's record holds it.

    Clients that keep evidence are asked for its hash; those that hold their own data keep the
    temperature of the run, which the same message tells. A client that does not answer has no hash
    of its evidence: no absent client costs a finished run.

    Parameters
    ----------
    schemas : of the clients of the run, ascending
    config : of the messages, `configs.sealing_config`
    evidence, own_data : whether the clients of the run keep evidence, and hold their own data
    """
    clients = zip(grid.clients, schemas, strict=True)
    # Why (decision 20): the record fixes what each client held, for `evidence verify`.
    by_client = {keys.DATA_SHA256: {client: schema.data_sha256 for client, schema in clients}}
    if evidence or own_data:
        batch = [wire.query(keys.SEAL, node, config) for node in grid.nodes]
        # `exchange` has no quorum: no absent client costs a finished run its result.
        sealed = [reply for reply in grid.exchange(batch, timeout) if not reply.has_error()]
        digests = {
            grid.client_of(reply): str(wire.config_of(reply)[keys.EVIDENCE_SHA256])
            for reply in sealed
        }
        by_client |= {keys.EVIDENCE_SHA256: digests} if evidence else {}
    return by_client


def score_record(result: Mapping[str, Any]) -> MetricRecord:
    """Return the scores of a result as a record of Flower; empty where the server knows none."""
    names = {"test-accuracy": "test_accuracy", "test-macro-f1": "test_macro_f1"}
    scores = {name: result[key] for name, key in names.items() if result[key] is not None}
    return MetricRecord(scores)
