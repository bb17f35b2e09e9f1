"""What a client refuses of a server that runs SecAgg+: the checks of each stage.

Flower's client counts the ids in a request; a list that names one client three times passes, and
the shares that come back unmask that client alone. These checks look at sets (Bonawitz et al. 2017,
"Practical Secure Aggregation", the active adversary's requests).
"""

from collections.abc import Sequence
from typing import Any

from flwr.app import ConfigRecord

from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SecAggKey, SecAggStage

LEAST = 3  # clients that exchange keys: of two, each would know the other
_OWN = "nid"  # fields of Flower's stored state
_THRESHOLD, _SHARES, _HELD = "threshold", "share_num", "rd_seed_share_dict:K"


def check_stage(stage: ConfigRecord, state: ConfigRecord) -> None:
    """Refuse requests that an honest server does not send.

    Parameters
    ----------
    stage : the request; state : what Flower's mod stored in the earlier stages of this round

    Raises
    ------
    UserError : the request would let the server read fewer clients' sum than this client agreed to
    """
    kind = stage.get(SecAggKey.STAGE)
    if kind == SecAggStage.SETUP:
        _check_setup(_int(stage, SecAggKey.SHARE_NUMBER), _int(stage, SecAggKey.THRESHOLD))
    elif kind == SecAggStage.SHARE_KEYS:
        _check_count("keys", len(stage) - 1, state, LEAST)
    elif kind == SecAggStage.COLLECT_MASKED_VECTORS:
        sources = [*_ids(stage, SecAggKey.SOURCE_LIST), _int(state, _OWN)]
        _check_unique(sources)
        _check_count("clients that sent shares", len(sources), state)
    elif kind == SecAggStage.UNMASK:
        alive = _ids(stage, SecAggKey.ACTIVE_NODE_ID_LIST)
        _check_unmask(alive, _ids(stage, SecAggKey.DEAD_NODE_ID_LIST), state)


def _check_setup(shares: int, threshold: int) -> None:
    if shares < LEAST:
        raise _refusal(f"a sum of at least {LEAST} clients", f"one of {shares}")
    if not shares < 2 * threshold <= 2 * shares:
        raise _refusal(f"more than half of {shares} shares as threshold", f"{threshold}")


def _check_count(what: str, found: int, state: ConfigRecord, least: int = 0) -> None:
    least, most = max(least, _int(state, _THRESHOLD)), _int(state, _SHARES)
    if not least <= found <= most:
        raise _refusal(f"{least} to {most} {what}", f"{found}")


def _check_unique(ids: Sequence[int]) -> None:
    if len(set(ids)) < len(ids):
        raise _refusal("every client once", "one more often")


def _check_unmask(alive: Sequence[int], dead: Sequence[int], state: ConfigRecord) -> None:
    """Check that every client whose shares are here is asked for one secret, and enough live."""
    if set(alive) & set(dead):
        raise _refusal("a request for one secret of each client", "one for both of one")
    _check_unique([*alive, *dead])
    _check_count("living clients", len(alive), state)
    held = set(_ids(state, _HELD))
    if {*alive, *dead} != held:
        raise _refusal(f"a request for the {len(held)} clients of this sum", "one for others")


def _refusal(expected: str, found: str) -> UserError:
    return UserError(
        f"secure aggregation: expected {expected}, found {found}; this client does not take part"
    )


def _int(record: ConfigRecord, key: str) -> int:
    value: Any = record.get(key, 0)
    return int(value)


def _ids(record: ConfigRecord, key: str) -> list[int]:
    value: Any = record.get(key, [])
    return list(value)
