"""ServerApp: config -> federation -> rounds -> result.json."""

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from dance_flwr import events
from dance_flwr.config.paths import named_folder, out_dir
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import initial_model, shape_of
from dance_flwr.federation.privacy.dp import affordable_rounds
from dance_flwr.federation.server.polling import MessageLog, timeout_of
from dance_flwr.federation.server.round import initial_arrays
from dance_flwr.federation.server.session import (
    describe,
    federate,
    final_counts,
    hashes,
    join,
    score_record,
    settled_reading,
    with_clients,
)
from dance_flwr.federation.server.strategies import make_round, strategy_name
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import arrays_of, state_of
from dance_flwr.methods import check_method, evaluation, get_spec
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.locks import SERVER, exclusive
from dance_flwr.runs.recorder import Recorder, observe_run, reason_of_failure
from dance_flwr.runs.result import closing_lines
from dance_flwr.runs.resume import begin, restore, resume_hint, save_checkpoint
from dance_flwr.runs.token_ledgers import token_ledgers

LOG = logging.getLogger("flwr")
OnRound = Callable[[dict[str, Any]], None]
events.install()
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation of the run config; the result is in `result.json`."""
    name = str(context.run_id)
    try:
        with reason_of_failure(named_folder(context.run_config), began=False):
            config = parse(with_clients(context.run_config, grid))
        folder = out_dir(config, name)
        # A server whose SuperLink died may still be running here.
        with exclusive(folder, SERVER):
            with reason_of_failure(folder, began=False):
                check_method(config)
            run(grid, config, name, folder)
    except UserError:
        # Flower logs the exception; without its traceback this is the one line that users need.
        sys.tracebacklimit = 0
        raise


def run(
    grid: Grid, config: RunConfig, name: str, folder: Path, on_round: OnRound | None = None
) -> None:
    """Find the clients, train the remaining rounds, and test the best model once."""
    check_method(config)
    with reason_of_failure(folder, began=False), resume_hint(folder):
        checkpoint = begin(name, config, folder)
    with reason_of_failure(folder), resume_hint(folder), observe_run(checkpoint, folder):
        _run(grid, checkpoint, folder, on_round)


def _run(grid: Grid, checkpoint: Checkpoint, folder: Path, on_round: OnRound | None) -> None:
    config, spec = checkpoint.config, get_spec(checkpoint.config.method)
    if (rounds := affordable_rounds(config)) < config.rounds:
        LOG.warning("the privacy budget ends after round %d of %d", rounds, config.rounds)
    members = join(grid, config, log := MessageLog())
    prepared = None if members[0].owns_data else checkpoint.prepare_partition(LOG.info)
    federation, timeout = federate(grid, members, config, log), timeout_of(config)
    common = messages.run_config(checkpoint.run, str(prepared.folder if prepared else ""))
    described = describe(federation, common, timeout)
    checkpoint.agree(prepared.manifest if prepared else None, described)
    first = (schemas := list(described.values()))[0]
    shape = shape_of(first.text_dim, len(first.class_names), config)
    rec = Recorder(folder, checkpoint, federation.take_traffic, federation.take_absent, on_round)
    strategy = make_round(config, shape, rec.on_train, rec.on_validation)
    checkpoint.sizes = federation.sizes(checkpoint.sizes, schemas, common, timeout)
    common |= settled_reading(checkpoint.reading, config, federation.votes)
    initial = initial_arrays(strategy.side, initial_model(shape, config).state_dict())
    start = restore(strategy, federation, checkpoint, initial)

    def end_round(step: int, arrays: ArrayRecord) -> MetricRecord | None:
        save = partial(save_checkpoint, strategy, federation, arrays, checkpoint, folder)
        if step:
            round_ = strategy.offset + step
            rec.end_round(round_, state_of(strategy.deployed), save, waits=strategy.waits(round_))
        else:
            save()
        # The last round's record is Flower's place for the scores of the whole run.
        return score_record(finish()) if step == strategy.remaining else None

    def finish() -> dict[str, Any]:
        rec.settle_model(state_of(strategy.deployed))
        best = partial(strategy.model_for, arrays_of(rec.best_state))
        clients, tokens, costs = final_counts(federation, best, common, rec.best_round, config)
        facts: dict[str, Any] = {"strategy": strategy_name(config)}
        facts |= {"evaluation": evaluation(config), "class_names": list(first.class_names)}
        facts |= {"partition_dir": str(prepared.folder) if prepared else None}
        facts |= {"devices": [s.device for s in schemas], "reading": checkpoint.reading}
        facts |= {"tokens": token_ledgers(tokens, checkpoint.sizes)}
        fitted, kept = rec.calibrate(clients), spec.keeps_evidence
        ending = {**common, keys.TEMPERATURE: fitted.temperature, keys.SCORED_NODES: fitted.nodes}
        facts |= hashes(federation, schemas, ending, timeout, evidence=kept, own_data=not prepared)
        if not prepared:  # a node with data of its own keeps a record, too
            facts["records"] = {str(m.client): log.digests().get(m.node, "") for m in members}
        return rec.write(clients, costs | facts | {"messages": log.rows()})

    strategy.run(federation, start, common, end_round)
    for line in closing_lines(folder):
        LOG.info(line)
