"""From a strategy at work to a checkpoint and back: optimiser, averages, clipping norm, record of messages."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from torch import Tensor

from dance_flwr import messages
from dance_flwr.checkpoint import SETTINGS, Checkpoint, Groups, write_settings
from dance_flwr.privacy.dp import affordable_rounds, repeats_cost
from dance_flwr.strategies.averaging import KeepingStrategy
from dance_flwr.strategies.federation import LOG, FederationGrid

# What strategies keep between rounds beside the model. Flower's: one array per entry of the model; ours: `memory`.
MOMENTS = ("momentum_vector", "m_t", "v_t", "memory")


def save(
    strategy: KeepingStrategy,
    federation: FederationGrid,
    arrays: ArrayRecord,
    kept: Mapping[str, Tensor],
    point: Checkpoint,
    folder: Path,
) -> None:
    """Write the checkpoint of a round that is over, or of the start.

    Parameters
    ----------
    arrays : the global model; kept : the one that is kept, which may be the same
    """
    take(strategy, federation, arrays, kept, point)
    point.save(folder)
    if not (folder / SETTINGS).is_file():
        write_settings(point, folder)


def take(
    strategy: KeepingStrategy,
    federation: FederationGrid,
    arrays: ArrayRecord,
    kept: Mapping[str, Tensor],
    point: Checkpoint,
) -> None:
    """Write into `point` what the server knows after a round; parameters as of `save`."""
    own = {name: tensor.numpy() for name, tensor in kept.items()}
    one = strategy.kept is arrays
    model = own if one else {name: array.numpy() for name, array in arrays.items()}
    groups: Groups = {"model": model} if one else {"model": model, "kept": own}
    for name in MOMENTS:
        value = getattr(strategy, name, None)
        if value is not None:
            groups[name] = value if isinstance(value, dict) else dict(zip(model, value, strict=True))
    if strategy.average.mean:
        groups["average"] = {name: tensor.numpy() for name, tensor in strategy.average.mean.items()}
    point.arrays = groups
    point.numbers = {"norm": strategy.norm.value, "average-weight": strategy.average.weight}
    point.ledger, point.total_weight = federation.ledger.rows(), federation.total_weight
    point.traffic = [dict(federation.traffic.down), dict(federation.traffic.up)]


def put_back(
    strategy: KeepingStrategy, federation: FederationGrid, point: Checkpoint, initial: ArrayRecord
) -> ArrayRecord:
    """Set strategy and federation to where `point` left them; return the global model, `initial` before round 1.

    The record of messages is that of whole rounds: greetings of a later start and a round that was cut off are not in
    it, as if the run had never stopped.
    """
    strategy.kept = initial
    federation.absent.clear()  # of questions before the first round
    strategy.offset, strategy.last = point.round, affordable_rounds(point.config, point.repeats)
    if not point.arrays:
        return initial
    point.resumed_after.append(point.round)
    if repeats_cost(point.config) and point.round < strategy.last:
        point.repeats += 1
        strategy.last = max(point.round, affordable_rounds(point.config, point.repeats))
        LOG.warning("round %d may be asked twice with other noise: it is charged twice", point.round + 1)
    groups = point.arrays
    arrays = _record(groups["model"])
    strategy.kept = _record(groups["kept"]) if "kept" in groups else arrays
    for name in MOMENTS:
        if name in groups:
            listed = name == "momentum_vector"
            setattr(strategy, name, list(groups[name].values()) if listed else dict(groups[name]))
    mean = messages.state_of(_record(groups.get("average", {})))
    strategy.average.restore(point.numbers["average-weight"], mean)
    strategy.norm.value = point.numbers["norm"]
    federation.total_weight = point.total_weight
    federation.ledger.restore(point.ledger)
    federation.traffic.down, federation.traffic.up = map(dict, point.traffic)
    LOG.info("run %s goes on with round %d of %d", point.run, point.round + 1, strategy.last)
    return arrays


def _record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})
