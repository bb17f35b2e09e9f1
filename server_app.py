"""ServerApp: config -> federation -> strategy -> rounds -> result.json."""

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from dance_flwr import checkpoint, events, messages, results
from dance_flwr.client import initial_model, shape_of
from dance_flwr.config import RunConfig, parse
from dance_flwr.errors import UserError
from dance_flwr.locks import SERVER, alone
from dance_flwr.methods import check_method, get_method
from dance_flwr.observe import observed
from dance_flwr.paths import out_dir
from dance_flwr.privacy.dp import affordable_rounds
from dance_flwr.privacy.ledger import Ledger
from dance_flwr.privacy.server import federate
from dance_flwr.strategies import make_strategy, progress, strategy_name
from dance_flwr.strategies.members import describe, final_counts, join

LOG = logging.getLogger("flwr")
OnRound = Callable[[dict[str, Any]], None]
events.install()
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; the result is in `result.json`."""
    name = str(context.run_id)
    try:
        config = parse(context.run_config)
        folder = out_dir(config, name)
        # A server whose SuperLink died may still be at work here.
        with results.reason_of_failure(folder), alone(folder, SERVER), checkpoint.telling_how_to_resume(folder):
            run(grid, config, name, folder)
    except UserError:
        # Flower logs the exception; without a traceback it is the one line that the user needs.
        sys.tracebacklimit = 0
        raise


def run(grid: Grid, config: RunConfig, name: str, folder: Path, on_round: OnRound | None = None) -> None:
    """Join, prepare, train what is left of `rounds` rounds, and read the test split once with the best model."""
    check_method(config)
    point = checkpoint.begin(name, config, folder)
    with observed(point, folder):
        _run(grid, point, folder, on_round)


def _run(grid: Grid, point: checkpoint.Checkpoint, folder: Path, on_round: OnRound | None) -> None:
    config, rounds = point.config, affordable_rounds(point.config)
    if rounds < config.rounds:
        LOG.warning("the privacy budget ends after round %d of %d", rounds, config.rounds)
    members = join(grid, config, ledger := Ledger())
    prepared = None if members[0].owns_data else point.prepared()
    federation = federate(grid, members, config, ledger)
    schemas = describe(federation, members, prepared.folder if prepared else None, config.round_timeout)
    point.agree(prepared.manifest if prepared else None, schemas)
    shape = shape_of(schemas[0].text_dim, len(schemas[0].class_names), config)
    initial = initial_model(shape, config).state_dict()
    recorder = results.Recorder(folder, config, federation.traffic.take, on_round, point, federation.take_absent)
    strategy = make_strategy(
        config, recorder.on_train, lambda metrics: recorder.on_validation(messages.read_counts(metrics, "val")), shape
    )
    common: dict[str, Any] = {"run": point.run, "partition-dir": str(prepared.folder if prepared else "")}
    point.sizes = point.sizes or federation.sizes(schemas, common, config.round_timeout)
    start = progress.put_back(strategy, federation, point, strategy.first(messages.arrays_of(initial)))

    def end_round(step: int, arrays: ArrayRecord) -> None:
        kept = messages.state_of(strategy.kept)
        save = partial(progress.save, strategy, federation, arrays, kept, point, folder)
        if step:
            recorder.end_round(strategy.offset + step, kept, save)
        else:
            save()

    strategy.start(
        federation,
        start,
        num_rounds=max(0, strategy.last - strategy.offset),
        timeout=config.round_timeout,
        train_config=ConfigRecord(dict(common)),
        evaluate_config=ConfigRecord(dict(common)),
        evaluate_fn=end_round,
    )
    recorder.settle(messages.state_of(strategy.kept))
    common |= {"server-round": recorder.best_round, "final": True}
    clients = final_counts(federation, members, messages.arrays_of(recorder.best_state), common, config.round_timeout)
    facts: dict[str, Any] = {"strategy": strategy_name(config), "evaluation": get_method(config.method).card.evaluation}
    facts |= {"method": config.method, "seed": config.seed}
    facts |= {"run": point.run, "partition_dir": str(prepared.folder) if prepared else None}
    facts |= {"devices": [schema.device for schema in schemas], "messages": ledger.rows(), **point.sizes}
    recorder.write(clients, facts)
