"""ServerApp: config -> federation -> strategy -> rounds -> result.json."""

import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from dance_flwr import messages, results
from dance_flwr.client import initial_model, shape_of
from dance_flwr.config import RunConfig, parse
from dance_flwr.errors import UserError
from dance_flwr.paths import out_dir
from dance_flwr.prepare import prepare
from dance_flwr.privacy.dp import affordable_rounds
from dance_flwr.privacy.ledger import Ledger
from dance_flwr.privacy.server import federate
from dance_flwr.seeding import derive
from dance_flwr.strategies import make_strategy
from dance_flwr.strategies.federation import describe, final_counts, join

LOG = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; the result is in `result.json`."""
    name = str(context.run_id)
    try:
        config = parse(context.run_config)
        folder = out_dir(config, name)
        with results.reason_of_failure(folder):
            run(grid, config, name, folder)
    except UserError:
        # Flower logs the exception; without a traceback it is the one line that the user needs.
        sys.tracebacklimit = 0
        raise


def run(
    grid: Grid,
    config: RunConfig,
    name: str,
    folder: Path,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Join, prepare, train for `rounds` rounds, and read the test split once with the best model."""
    rounds = affordable_rounds(config)
    if rounds < config.rounds:
        LOG.warning("the privacy budget ends after round %d of %d", rounds, config.rounds)
    ledger = Ledger()
    members = join(grid, config, ledger)
    partition = None if members[0].owns_data else prepare(config).folder
    federation = federate(grid, members, config, ledger)
    schemas = describe(federation, members, partition, config.round_timeout)
    initial = initial_model(shape_of(schemas[0].text_dim, len(schemas[0].class_names), config), config).state_dict()
    recorder = results.Recorder(folder, config, federation.traffic.take, on_round)
    strategy = make_strategy(
        config, recorder.on_train, lambda metrics: recorder.on_validation(messages.read_counts(metrics, "val"))
    )
    common: dict[str, Any] = {"run": name, "partition-dir": str(partition or "")}
    sizes = federation.sizes(schemas, common, config.round_timeout)

    def end_round(round_: int, arrays: ArrayRecord) -> None:
        if round_:
            recorder.end_round(round_, messages.state_of(strategy.kept))

    random.seed(derive(config.seed, "sampling"))
    strategy.start(
        federation,
        messages.arrays_of(initial),
        num_rounds=rounds,
        timeout=config.round_timeout,
        train_config=ConfigRecord(dict(common)),
        evaluate_config=ConfigRecord(dict(common)),
        evaluate_fn=end_round,
    )
    common |= {"server-round": recorder.best_round, "final": True}
    clients = final_counts(federation, members, messages.arrays_of(recorder.best_state), common, config.round_timeout)
    facts = {
        "run": name,
        "strategy": config.strategy,
        "method": config.method,
        "seed": config.seed,
        "partition_dir": str(partition) if partition else None,
        "devices": [schema.device for schema in schemas],
        "messages": ledger.rows(),
        **sizes,
    }
    recorder.write(clients, facts)
