"""Check the requests of a server that runs SecAgg+, stage by stage, at a client.

Flower's client counts the ids in a request; a list that names one client three times passes, and
the shares that come back unmask that client alone. These checks look at sets (Bonawitz et al. 2017,
"Practical Secure Aggregation", the active adversary's requests).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import ConfigRecord, Context

from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.flower import SECAGG_STATE_STAGE, SecAggKey, SecAggStage
from dance_flwr.federation.secagg.request import SumOptions, refusal
from dance_flwr.federation.wire import keys

MIN_CLIENTS = 3  # of a sum: of two, each could subtract its own part from it
# Fields of Flower's stored state.
THRESHOLD, SHARES = "threshold", "share_num"
_NODE, _HELD = "nid", "rd_seed_share_dict:K"
# What Flower multiplies and adds by, in the order of `SumFormat.quantisation`.
_QUANTISATION = ("max_weight", "clipping_range", "target_range", "mod_range")
_SCALE = "dance-flwr-scale"  # of the run's first sum
_REFUSED = "dance-flwr-refused"  # whether an answer had to be refused in this run


def clients_to_stay(clients: int, config: RunConfig) -> int:
    """Return how many of the clients of a sum must stay until its end."""
    # Here, as it loads torch: a client's stages need none.
    from dance_flwr.federation.privacy.dp import fewest_clients, shares_needed

    # Never fewer than the noise is calibrated for, even if some were absent from the start.
    needed = max(shares_needed(clients, config.privacy.threshold), fewest_clients(config))
    # Why (decision 8): of a sum of two, each client could subtract its own part.
    return max(needed, MIN_CLIENTS)


def check_stage(stage: ConfigRecord, state: ConfigRecord, min_clients: int = 0) -> None:
    """Refuse requests that an honest server does not send.

    Parameters
    ----------
    stage : the request; state : what Flower's mod stored in the earlier stages of this round
    min_clients : fewest clients of a sum that stay, by the node's own terms

    Raises
    ------
    UserError : the request would let the server read fewer clients' sum than this client agreed to
    """
    kind = stage.get(SecAggKey.STAGE)
    if kind == SecAggStage.SETUP:
        _check_setup(
            _int(stage, SecAggKey.SHARE_NUMBER), _int(stage, SecAggKey.THRESHOLD), min_clients
        )
    elif kind == SecAggStage.SHARE_KEYS:
        _check_count("keys", len(public_keys(stage)), state, MIN_CLIENTS)
    elif kind == SecAggStage.COLLECT_MASKED_VECTORS:
        # The list names the other clients; this one is in the sum too.
        sources = [*_ids(stage, SecAggKey.SOURCE_LIST), _int(state, _NODE)]
        _check_unique(sources)
        _check_count("clients that sent shares", len(sources), state)
    elif kind in (keys.SURVIVORS, SecAggStage.UNMASK):
        # Flower's mod does not know the stage of survivors, so the order is checked here: nothing
        # is signed or unmasked before the masked vector has left.
        if state.get(SECAGG_STATE_STAGE) != SecAggStage.COLLECT_MASKED_VECTORS:
            raise refusal("the stages of a sum in their order", f"{kind!r}")
        _check_unmask(*survivors(stage), state)
    else:
        raise refusal("a stage of SecAgg+", f"{kind!r}")


def public_keys(stage: ConfigRecord) -> dict[int, Any]:
    """Return node -> its two public keys of a request to share keys."""
    names = [name for name in stage if name != SecAggKey.STAGE]
    _check_unique([int(name) for name in names])
    return {int(name): stage[name] for name in names}


def survivors(stage: ConfigRecord) -> tuple[list[int], list[int]]:
    """Return the living and the dead clients that a request names."""
    return _ids(stage, SecAggKey.ACTIVE_NODE_ID_LIST), _ids(stage, SecAggKey.DEAD_NODE_ID_LIST)


def check_quantisation(options: SumOptions, state: ConfigRecord) -> None:
    """Refuse a setup with other factors than those of the integers of the sum.

    They come before the masks, and no mask or signature depends on them: if the vectors of all
    clients but one are multiplied by 0, the sum of all is that one's.
    """
    expected = options.form.quantisation
    if tuple(state.get(name) for name in _QUANTISATION) != expected:
        raise refusal("the integers of the sum in its setup", "others")


def check_scale(options: SumOptions, context: Context) -> None:
    """Refuse another total weight, or another range of updates, than that of the run's first sum.

    Whether a client refuses tells a server how its weight compares with the total, and its largest
    change with the range: of one guess per run, and not of as many as there are rounds. Under
    differential privacy, weights are 1 and updates are within the range.
    """
    # Under adaptive clipping the bound changes by round, and under any noise weights are 1: there
    # is nothing to guess.
    private = context.run_config.get("privacy.dp", "none") != "none"
    if options.task != keys.TRAIN or private:
        return
    scale = [float(options.total_weight), float(options.bound)]
    first = context.state.config_records.setdefault(_SCALE, ConfigRecord({_SCALE: scale}))
    if first[_SCALE] != scale:
        raise refusal(f"total weight and range as before, {first[_SCALE]!r}", f"{scale}")


@contextmanager
def refusing_once(context: Context) -> Iterator[None]:
    """Let an answer that cannot be made or summed be the last one of this run.

    Whether it can depends on the data and on the model that the server chose: with a weight of
    minus infinity, on whether a class is here. Asked in every round, that is a bit in every round.
    What files and memory refuse says nothing of the data.
    """
    try:
        yield
    except (OSError, MemoryError):
        # Once there is space, the client takes part again; neither error depends on its data.
        raise
    except Exception:
        context.state.config_records[_REFUSED] = ConfigRecord({_REFUSED: True})
        raise


def check_unrefused(context: Context) -> None:
    """Refuse every sum after an answer of this run could not be summed."""
    if _REFUSED in context.state.config_records:
        raise refusal("a run in which every answer could be summed", "one that could not")


def _check_setup(shares: int, threshold: int, min_clients: int) -> None:
    if shares < MIN_CLIENTS:
        raise refusal(f"a sum of at least {MIN_CLIENTS} clients", f"one of {shares}")
    # Why (decision 8): with half of the shares as threshold, a server could let one half of the
    # clients remove the masks of some and the other half those of the rest.
    if not shares < 2 * threshold <= 2 * shares:
        raise refusal(f"more than half of {shares} shares as threshold", f"{threshold}")
    if threshold < (fewest := max(min_clients, MIN_CLIENTS)):
        raise refusal(
            f"at least {fewest} clients that stay ({keys.MIN_CLIENTS}) as threshold",
            f"{threshold}",
        )


def _check_count(what: str, count: int, state: ConfigRecord, minimum: int = 0) -> None:
    minimum, maximum = max(minimum, _int(state, THRESHOLD)), _int(state, SHARES)
    if not minimum <= count <= maximum:
        raise refusal(f"{minimum} to {maximum} {what}", f"{count}")


def _check_unique(ids: Sequence[int]) -> None:
    if len(set(ids)) < len(ids):
        raise refusal("every client once", "one more often")


def _check_unmask(alive: Sequence[int], dead: Sequence[int], state: ConfigRecord) -> None:
    """Refuse unless one secret of each client of this sum is asked for, and enough have stayed."""
    # Both secrets of one client remove every mask of its vector.
    if set(alive) & set(dead):
        raise refusal("a request for one secret of each client", "one for both of one")
    _check_unique([*alive, *dead])
    _check_count("living clients", len(alive), state)
    # As sets: other nodes of the same number would pass a count.
    held = set(_ids(state, _HELD))
    if {*alive, *dead} != held:
        raise refusal(f"a request for the {len(held)} clients of this sum", "one for others")


def _int(record: ConfigRecord, key: str) -> int:
    value: Any = record.get(key, 0)
    return int(value)


def _ids(record: ConfigRecord, key: str) -> list[int]:
    value: Any = record.get(key, [])
    return list(value)
