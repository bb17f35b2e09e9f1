"""Requests of masked sums: their options, their digest in all masks, and what clients refuse.

A server that asks one client for something else than the others (another model, total weight, norm,
task or setting) could separate its part from the sum: the model inconsistency of Pasquini et al.
2022, "Eluding Secure Aggregation in Federated Learning". The masks of two clients with different
requests do not cancel, so that such a sum is noise.

Flower's client counts the ids in a request; a list that names one client three times passes, and
the shares that come back unmask that client alone. `check_stage` compares sets instead, against the
active adversary of Bonawitz et al. 2017, "Practical Secure Aggregation".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS, SECAGG_STATE_STAGE, SecAggKey, SecAggStage
from dance_flwr.federation.secagg.vectors import DIGIT_BITS, MAX_BITS, SumFormat
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import numpy_of

_BY_CLIENT = (SECAGG_CONFIGS, keys.SIGNED)  # records that differ by client: keys and shares
# In every statement, so that a signature is worth nothing outside this app, or in a later form.
_LABEL = "dance-flwr statement 1"
MIN_CLIENTS = 3  # of a sum; in one of two, each could subtract its own part
# Fields of Flower's stored state.
THRESHOLD, SHARES = "threshold", "share_num"
_NODE, _HELD = "nid", "rd_seed_share_dict:K"
# Flower's parameters of quantisation, in the order of `SumFormat.quantisation`.
_QUANTISATION = ("max_weight", "clipping_range", "target_range", "mod_range")
_SCALE = "dance-flwr-scale"  # of the run's first sum
_REFUSED = "dance-flwr-refused"  # whether an answer had to be refused in this run


@dataclass(frozen=True)
class SumOptions:
    """The options of a masked sum.

    Attributes
    ----------
    task : TRAIN, EVALUATE or WEIGH
    total_weight : W, of all clients
    bound : R, the largest change of a weight
    form : the integers of the sum
    """

    task: str
    total_weight: float
    bound: float
    form: SumFormat

    def record(self) -> ConfigRecord:
        """Return the options as a record of a message."""
        values: dict[str, Any] = {
            keys.TASK: self.task,
            keys.TOTAL_WEIGHT: self.total_weight,
            keys.UPDATE_RANGE: self.bound,
            keys.LEVELS: self.form.levels,
            keys.BITS: self.form.bits,
            keys.DIGIT_BITS: self.form.digit_bits,
        }
        return ConfigRecord(values)

    def share(self, weight: int) -> float:
        """Return s = w / W of a client with this weight."""
        share = weight / max(self.total_weight, 1)
        # The bits of a sum hold because all shares together are at most 1 (`vectors`).
        if share > 1:
            raise UserError(
                f"secure aggregation: expected at least this client's {weight} nodes in the "
                f"federation's total, found {self.total_weight}; it was not connected when "
                "the run started: start the run again"
            )
        return float(share)


def options_of(message: Message) -> SumOptions | None:
    """Return the options of the masked sum that a message asks for; None without masks."""
    record: Any = message.content.config_records.get(keys.SECURE_SUM)
    if record is None:
        return None
    levels, bits, digit_bits = (record[key] for key in (keys.LEVELS, keys.BITS, keys.DIGIT_BITS))
    # Checked first, as shifts and sizes follow from these numbers.
    if not (0 < levels <= 2**MAX_BITS and 1 < bits <= MAX_BITS and 0 < digit_bits <= DIGIT_BITS):
        raise refusal("integers of 2 to 32 bits", f"{bits} bits, {levels} levels")
    form = SumFormat(int(levels), int(bits), int(digit_bits))
    scale = record[keys.TOTAL_WEIGHT], record[keys.UPDATE_RANGE]
    return SumOptions(str(record[keys.TASK]), *scale, form)


def request_digest(content: RecordDict, config: RunConfig) -> str:
    """Return a digest of the model, the settings and the integers that a sum asks for."""
    # Without keys and shares, which differ by client: otherwise no two masks would cancel.
    records = {name: _facts(record) for name, record in content.items() if name not in _BY_CLIENT}
    # Paths and timeouts may differ without changing what is computed.
    run = {key: value for key, value in flatten(config).items() if key not in FREE}
    return digest("request", records=records, run=run)


def statement(purpose: str, **facts: Any) -> bytes:
    """Return the text to sign: canonical JSON of a label, the purpose and the facts."""
    # Canonical: the verifier builds the text from facts that it knows itself, and parses nothing.
    text = json.dumps([_LABEL, purpose, facts], sort_keys=True, default=bytes.hex)
    return text.encode()


def digest(purpose: str, **facts: Any) -> str:
    """Return the sha256 of a `statement` in hexadecimal digits."""
    return hashlib.sha256(statement(purpose, **facts)).hexdigest()


def refusal(expected: str, actual: str) -> UserError:
    """Return the error of a client that does not take part in a sum."""
    return UserError(
        f"secure aggregation: expected {expected}, found {actual}; this client does not take part"
    )


def _facts(record: Mapping[str, Any]) -> list[list[Any]]:
    if not isinstance(record, ArrayRecord):
        return [[name, record[name]] for name in sorted(record)]
    return [
        [name, str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in numpy_of(record).items()
    ]


def clients_to_stay(clients: int, config: RunConfig) -> int:
    """Return how many clients of a sum must stay until its end."""
    # Imported here, as it loads torch, which the stages of a client do not need.
    from dance_flwr.federation.privacy.dp import fewest_clients, shares_needed

    # At least as many as the noise is calibrated for, even if some were absent from the start.
    needed = max(shares_needed(clients, config.privacy.threshold), fewest_clients(config))
    # Why (decision 8): of a sum of two, each client could subtract its own part.
    return max(needed, MIN_CLIENTS)


def check_stage(stage: ConfigRecord, state: ConfigRecord, min_clients: int = 0) -> None:
    """Refuse requests that an honest server does not send.

    Parameters
    ----------
    stage : the request
    state : of Flower's mod after the earlier stages of this round
    min_clients : fewest clients of a sum that stay, by the node's own terms

    Raises
    ------
    UserError : the request would let the server read fewer clients' sum than this client agreed to
    """
    kind = stage.get(SecAggKey.STAGE)
    if kind == SecAggStage.SETUP:
        shares, threshold = _int(stage, SecAggKey.SHARE_NUMBER), _int(stage, SecAggKey.THRESHOLD)
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
    elif kind == SecAggStage.SHARE_KEYS:
        _check_count("keys", len(public_keys(stage)), state, MIN_CLIENTS)
    elif kind == SecAggStage.COLLECT_MASKED_VECTORS:
        # The list names the other clients; this one is in the sum too.
        sources = [*_ids(stage, SecAggKey.SOURCE_LIST), _int(state, _NODE)]
        _check_unique(sources)
        _check_count("clients that sent shares", len(sources), state)
    elif kind in (keys.SURVIVORS, SecAggStage.UNMASK):
        # The order is checked here, as Flower's mod does not know the stage of survivors: nothing
        # is signed or unmasked before the masked vector has left.
        if state.get(SECAGG_STATE_STAGE) != SecAggStage.COLLECT_MASKED_VECTORS:
            raise refusal("the stages of a sum in their order", f"{kind!r}")
        alive, dead = survivors(stage)
        # Both secrets of one client remove every mask of its vector.
        if set(alive) & set(dead):
            raise refusal("a request for one secret of each client", "one for both of one")
        _check_unique([*alive, *dead])
        _check_count("living clients", len(alive), state)
        # As sets: other nodes of the same number would pass a count.
        held = set(_ids(state, _HELD))
        if {*alive, *dead} != held:
            raise refusal(f"a request for the {len(held)} clients of this sum", "one for others")
    else:
        raise refusal("a stage of SecAgg+", f"{kind!r}")


def public_keys(stage: ConfigRecord) -> dict[int, Any]:
    """Return node -> its two public keys in a request to share keys."""
    names = [name for name in stage if name != SecAggKey.STAGE]
    _check_unique([int(name) for name in names])
    return {int(name): stage[name] for name in names}


def survivors(stage: ConfigRecord) -> tuple[list[int], list[int]]:
    """Return the living and the dead clients that a request names."""
    return _ids(stage, SecAggKey.ACTIVE_NODE_ID_LIST), _ids(stage, SecAggKey.DEAD_NODE_ID_LIST)


def check_quantisation(options: SumOptions, state: ConfigRecord) -> None:
    """Refuse a setup with other parameters of quantisation than those of the sum.

    No mask or signature depends on them: if the vectors of all clients but one are multiplied by 0,
    the sum of all is the vector of that one.
    """
    expected = options.form.quantisation
    if tuple(state.get(name) for name in _QUANTISATION) != expected:
        raise refusal("the integers of the sum in its setup", "others")


def check_scale(options: SumOptions, context: Context) -> None:
    """Refuse another total weight, or another range of updates, than in the run's first sum.

    A refusal tells the server how the client's weight compares with the total, and its largest
    change with the range: this allows one guess per run instead of one per round.
    """
    # Under noise weights are 1 and updates are within the range: there is nothing to guess.
    private = context.run_config.get("privacy.dp", "none") != "none"
    if options.task != keys.TRAIN or private:
        return
    scale = [float(options.total_weight), float(options.bound)]
    first = context.state.config_records.setdefault(_SCALE, ConfigRecord({_SCALE: scale}))
    if first[_SCALE] != scale:
        raise refusal(f"total weight and range as before, {first[_SCALE]!r}", f"{scale}")


@contextmanager
def refusing_once(context: Context) -> Iterator[None]:
    """End the client's part in this run after an answer that cannot be made or summed.

    Such a failure may depend on the data and on the model that the server chose: with a weight of
    minus infinity, on whether a class is here. In every round it would be one bit per round.
    Errors of files and memory say nothing of the data.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise  # once there is space, the client takes part again
    except Exception:
        context.state.config_records[_REFUSED] = ConfigRecord({_REFUSED: True})
        raise


def check_unrefused(context: Context) -> None:
    """Refuse every sum after an answer of this run could not be summed."""
    if _REFUSED in context.state.config_records:
        raise refusal("a run in which every answer could be summed", "one that could not")


def _check_count(what: str, count: int, state: ConfigRecord, minimum: int = 0) -> None:
    minimum, maximum = max(minimum, _int(state, THRESHOLD)), _int(state, SHARES)
    if not minimum <= count <= maximum:
        raise refusal(f"{minimum} to {maximum} {what}", f"{count}")


def _check_unique(ids: Sequence[int]) -> None:
    if len(set(ids)) < len(ids):
        raise refusal("every client once", "one more often")


def _int(record: ConfigRecord, key: str) -> int:
    value: Any = record.get(key, 0)
    return int(value)


def _ids(record: ConfigRecord, key: str) -> list[int]:
    value: Any = record.get(key, [])
    return list(value)
