"""From a round at work to a checkpoint and back: model, optimiser, averages, norm, messages."""

from pathlib import Path

from flwr.app import ArrayRecord

from dance_flwr.config.paths import SETTINGS
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.server.round import Round
from dance_flwr.privacy.dp import affordable_rounds, repeats_cost
from dance_flwr.runs.checkpoint import Checkpoint, write_settings


def save(
    round_: Round,
    federation: FederationGrid,
    arrays: ArrayRecord,
    point: Checkpoint,
    folder: Path,
) -> None:
    """Write the checkpoint of a round that is over, or of the start.

    Parameters
    ----------
    arrays : the global model
    """
    take(round_, federation, arrays, point)
    point.save(folder)
    if not (folder / SETTINGS).is_file():
        write_settings(point, folder)


def take(round_: Round, federation: FederationGrid, arrays: ArrayRecord, point: Checkpoint) -> None:
    """Write into `point` what the server knows after a round; parameters as of `save`."""
    point.arrays, point.numbers = round_.state(arrays)
    point.ledger, point.total_weight = federation.ledger.rows(), federation.total_weight
    point.traffic = [dict(federation.traffic.down), dict(federation.traffic.up)]


def put_back(
    round_: Round, federation: FederationGrid, point: Checkpoint, initial: ArrayRecord
) -> ArrayRecord:
    """Set round and federation to where `point` left them; return the global model.

    That is `initial` before round 1. The record of messages is that of whole rounds: greetings of a
    later start and a round that was cut off are not in it, as if the run had never stopped.
    """
    round_.deployed = initial
    federation.absent.clear()  # of questions before the first round
    round_.offset, round_.last = point.round, affordable_rounds(point.config, point.repeats)
    if not point.arrays:
        return initial
    point.resumed_after.append(point.round)
    if repeats_cost(point.config) and point.round < round_.last:
        point.repeats += 1
        round_.last = max(point.round, affordable_rounds(point.config, point.repeats))
        LOG.warning(
            "round %d may be asked twice with other noise: it is charged twice", point.round + 1
        )
    arrays = round_.restore(point.arrays, point.numbers)
    federation.total_weight = point.total_weight
    federation.ledger.restore(point.ledger)
    federation.traffic.down, federation.traffic.up = map(dict, point.traffic)
    LOG.info("run %s goes on with round %d of %d", point.run, point.round + 1, round_.last)
    return arrays
