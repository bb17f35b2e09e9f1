"""Capture a round and its federation in a checkpoint, and restore them."""

from pathlib import Path

from dance_flwr.config.paths import SETTINGS
from dance_flwr.federation.privacy.dp import affordable_rounds, repeats_cost
from dance_flwr.federation.server.grid import LOG, FederationGrid
from dance_flwr.federation.server.round import Model, Round
from dance_flwr.runs.checkpoint import Checkpoint
from dance_flwr.runs.resume import write_settings


def save(
    round_: Round,
    federation: FederationGrid,
    arrays: Model,
    checkpoint: Checkpoint,
    folder: Path,
) -> None:
    """Write the checkpoint of a completed round, or of the start."""
    capture(round_, federation, arrays, checkpoint)
    checkpoint.save(folder)
    # Once: it is the same in every round.
    if not (folder / SETTINGS).is_file():
        write_settings(checkpoint, folder)


def capture(
    round_: Round, federation: FederationGrid, arrays: Model, checkpoint: Checkpoint
) -> None:
    """Store the state of round and federation in `checkpoint`; parameters as for `save`."""
    checkpoint.arrays, checkpoint.numbers = round_.state(arrays)
    checkpoint.messages, checkpoint.total_weight = federation.log.rows(), federation.total_weight
    checkpoint.traffic = [dict(federation.traffic.down), dict(federation.traffic.up)]


def restore(
    round_: Round, federation: FederationGrid, checkpoint: Checkpoint, initial: Model
) -> Model:
    """Restore round and federation from `checkpoint`; return the global model.

    Before round 1 this is `initial`. The restored record of messages is that of complete rounds,
    without the queries of a later start or a round that was cut off, as if the run had not stopped.
    """
    round_.deployed = initial
    federation.absent.clear()  # absences during the queries before the first round
    round_.offset, round_.last = (
        checkpoint.round,
        affordable_rounds(checkpoint.config, checkpoint.repeats),
    )
    if not checkpoint.arrays:
        return initial
    checkpoint.resumed_after.append(checkpoint.round)
    # Why (decision 10): the noisy sums of both tries may have been seen.
    if repeats_cost(checkpoint.config.privacy) and checkpoint.round < round_.last:
        checkpoint.repeats += 1
        # The charge may end the run a round earlier; completed rounds stay.
        round_.last = max(
            checkpoint.round, affordable_rounds(checkpoint.config, checkpoint.repeats)
        )
        LOG.warning(
            "round %d may be repeated with new noise: it is charged twice", checkpoint.round + 1
        )
    arrays = round_.restore(checkpoint.arrays, checkpoint.numbers)
    federation.restore(checkpoint.sizes, checkpoint.total_weight)
    # As if the run had not stopped: a resumed result equals that of an uninterrupted run bit by bit
    # (decision 10).
    federation.log.restore(checkpoint.messages)
    federation.traffic.down, federation.traffic.up = map(dict, checkpoint.traffic)
    LOG.info(
        "run %s resumes with round %d of %d", checkpoint.run, checkpoint.round + 1, round_.last
    )
    return arrays
