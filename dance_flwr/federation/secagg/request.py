"""Options of a masked sum, the same for all clients, and the digest of a request in all masks.

A server that asks one client for something else than the others (another model, total weight, norm,
task or setting) could tell its part of a sum from theirs, although the sum is over all of them: the
model inconsistency of Pasquini et al. 2022, "Eluding Secure Aggregation in Federated Learning". The
masks of two clients that were asked different things do not cancel, so that such a sum is noise.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS
from dance_flwr.federation.secagg.signatures import digest
from dance_flwr.federation.secagg.vectors import DIGIT_BITS, MAX_BITS, SumFormat
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.tensors import numpy_of

_BY_CLIENT = (SECAGG_CONFIGS, keys.SIGNED)  # records that differ by client: keys and shares


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
        """Return the record in which these options travel."""
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
        """Return s = w / W of a client of this weight."""
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
    # Before anything is computed from them: shifts and sizes follow from these numbers.
    if not (0 < levels <= 2**MAX_BITS and 1 < bits <= MAX_BITS and 0 < digit_bits <= DIGIT_BITS):
        raise refusal("integers of 2 to 32 bits", f"{bits} bits, {levels} levels")
    form = SumFormat(int(levels), int(bits), int(digit_bits))
    scale = record[keys.TOTAL_WEIGHT], record[keys.UPDATE_RANGE]
    return SumOptions(str(record[keys.TASK]), *scale, form)


def request_digest(content: RecordDict, config: RunConfig) -> str:
    """Return a digest of the model, the settings and the integers that a sum asks for."""
    # Keys and shares differ by client: with them, no two masks would ever cancel.
    records = {name: _facts(record) for name, record in content.items() if name not in _BY_CLIENT}
    # Paths and timeouts may differ without changing what is computed.
    run = {key: value for key, value in flatten(config).items() if key not in FREE}
    return digest("request", records=records, run=run)


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
