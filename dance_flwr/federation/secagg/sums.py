"""What a masked sum adds up: its options, and a reply as one vector of integers modulo 2^b.

Flower's SecAgg+ sums float vectors in fixed point; it silently clips to a range and damages 0-d
arrays. So a client sends a single 1-d vector without clipping, and integers are recovered exactly:

    [ s * (omega - omega_0) / R * q / 2  ||  digits of the integers ],  s = w / W

with w the client's nodes, W all nodes of the federation, R the bound of an update and q the levels
of the sum (`methods.fixed_point`). As the s of all clients sum to at most 1, a sum over M clients
is within q / 2 + M / 2: b bits must hold this, and not M times the range of one client.
The integers (w itself, counts, microseconds) are written as digits of 15 bits or fewer; sums of
digits are sums of integers.

A server that asks one client for something else than the others (another model, total weight, norm,
task or setting) could separate its part from the sum: the model inconsistency of Pasquini et al.
2022, "Eluding Secure Aggregation in Federated Learning". All masks therefore depend on a digest of
the request (`request_digest`), so that such a sum is noise.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import record_in
from dance_flwr.federation.wire.tensors import numpy_of
from dance_flwr.methods.fixed_point import Integers, Vector

# Any count of a client has 60 bits; a sum of digits of 15 bits over 2^16 clients fits 31 bits.
VALUE_BITS, DIGIT_BITS = 60, 15
MAX_VALUE = 2**VALUE_BITS - 1
MICRO = 1_000_000
MAX_BITS = 32  # of a masked integer: Flower's quantisation stores no wider ones
CHUNK = 2**16  # numbers packed at a time: a multiple of 8, so that each chunk ends with a byte
MIN_CLIENTS = 3  # of a sum; in one of two, each could subtract its own part
_BY_CLIENT = (SECAGG_CONFIGS, keys.SIGNED)  # records that differ by client: keys and shares
# In every statement, so that a signature is worth nothing outside this app, or in a later form.
_LABEL = "dance-flwr statement 1"


@dataclass(frozen=True)
class SumFormat:
    """The integers of a sum.

    Attributes
    ----------
    levels : q; an update of 1 (that is, of R with s = 1) is q / 2 steps
    bits : b; sums are modulo 2^b
    digit_bits : bits of one digit of an integer
    """

    levels: int
    bits: int
    digit_bits: int

    @property
    def offset(self) -> int:
        """Half the range that Flower's quantisation may fill: it stores 31 bits and a sign."""
        return int(2 ** (min(self.bits, MAX_BITS - 1) - 1))

    @property
    def quantisation(self) -> tuple[float, float, int, int]:
        """Flower's largest weight, clipping range, target range and modulus.

        It multiplies by 1 / largest weight, and adds the offset.
        """
        return 2.0 * self.offset, float(self.offset), 2 * self.offset, 2**self.bits

    @property
    def digits(self) -> int:
        """Digits of an integer of 60 bits."""
        return -(-VALUE_BITS // self.digit_bits)

    def wrap(self, numbers: Integers) -> Integers:
        """Return the numbers modulo 2^b, from -2^(b-1)."""
        half = 1 << (self.bits - 1)
        wrapped: Integers = ((numbers + half) & ((1 << self.bits) - 1)) - half
        return wrapped


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


def kind_of(request: Message) -> tuple[str, str]:
    """Return the task of a request, and its stage of a masked sum; Flower calls all TRAIN."""
    records = request.content if request.has_content() else RecordDict()
    task: Any = record_in(records, keys.SECURE_SUM, ConfigRecord) or {}
    stage: Any = record_in(records, SECAGG_CONFIGS, ConfigRecord) or {}
    asked = task.get(keys.TASK, request.metadata.message_type)
    return str(asked), str(stage.get(SecAggKey.STAGE, ""))


def options_of(message: Message) -> SumOptions | None:
    """Return the options of the masked sum that a message asks for; None without masks."""
    record: Any = record_in(message.content, keys.SECURE_SUM, ConfigRecord)
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


def check_bounded(update: Vector, share: float, bound: float) -> None:
    """Refuse an update that the protocol would clip, which would silently change the mean."""
    # A client of weight 0 adds zeros; only values that are not finite remain.
    largest = float(np.abs(update).max(initial=0.0)) * bound / (share or 1.0)
    # `not <=`, and not `>`: NaN is refused as well.
    if not largest <= bound:
        raise UserError(
            f"secure aggregation: expected updates within +-{bound:g} per round, found "
            f"{largest:.3g}; raise privacy.update-range, or lower learning-rate or local-epochs"
        )


def encode_integers(values: Sequence[int], form: SumFormat) -> Integers:
    """Return the digits of m values, lowest first; [m * digits] int64 from 0."""
    wrong = [value for value in values if not 0 <= value <= MAX_VALUE]
    if wrong:
        raise ValueError(
            f"expected integers from 0 to 2^60 - 1 under secure aggregation, found {wrong[0]}"
        )
    numbers = np.array(values, dtype=np.int64)[:, None]
    digits = (numbers >> (form.digit_bits * np.arange(form.digits))) & (2**form.digit_bits - 1)
    flat: Integers = digits.ravel()
    return flat


@dataclass(frozen=True)
class MetricLayout:
    """The layout of a reply's metrics as integers, the same at every client.

    Attributes
    ----------
    names : metrics, sorted
    lengths : number of values of each; 0 = a scalar
    micro : which are stored in millionths
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    micro: tuple[bool, ...]

    @classmethod
    def of(cls, metrics: Mapping[str, int | float | Sequence[int]]) -> MetricLayout:
        """Return the layout of these metrics, sorted by name."""
        names = tuple(sorted(metrics))
        values = [metrics[name] for name in names]
        lengths = tuple(len(value) if isinstance(value, list) else 0 for value in values)
        return cls(names, lengths, tuple(isinstance(value, float) for value in values))

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> MetricLayout:
        """Return the layout in a client's answer."""
        return cls(*(tuple(record[key]) for key in (keys.NAMES, keys.LENGTHS, keys.MICRO)))

    def record(self) -> ConfigRecord:
        """Return the layout as a record of a message."""
        values: dict[str, Any] = {
            keys.NAMES: list(self.names),
            keys.LENGTHS: list(self.lengths),
            keys.MICRO: list(self.micro),
        }
        return ConfigRecord(values)

    @property
    def size(self) -> int:
        """Number of integers; each has `SumFormat.digits` digits."""
        return sum(max(length, 1) for length in self.lengths)

    def pack(self, metrics: Mapping[str, int | float | Sequence[int]]) -> list[int]:
        """Return the values as integers, in the order of the names."""
        values: list[int] = []
        for name, micro in zip(self.names, self.micro, strict=True):
            value = metrics[name]
            every: list[Any] = list(value) if isinstance(value, list) else [value]
            # Masks need integers, so fractions become millionths.
            values += [round(number * MICRO) if micro else int(number) for number in every]
        return values

    def unpack(self, values: Sequence[int]) -> dict[str, int | float | list[int]]:
        """Return the metrics of these integers."""
        metrics: dict[str, int | float | list[int]] = {}
        place = 0
        for name, length, micro in zip(self.names, self.lengths, self.micro, strict=True):
            part = list(values[place : place + max(length, 1)])
            place += len(part)
            metrics[name] = part if length else part[0] / MICRO if micro else part[0]
        return metrics


def pack_bits(numbers: NDArray[Any], bits: int) -> bytes:
    """Return the lowest `bits` bits of each number, one after the other, after their count.

    Parameters
    ----------
    numbers : [n] integers; bits : from 1 to 32

    Returns
    -------
    8 bytes with n, lowest first, and ceil(n * bits / 8) bytes
    """
    # Flower's integers are wider; a sum modulo 2^b needs the b lowest bits.
    words = np.ascontiguousarray(numbers.ravel() & ((1 << bits) - 1), "<u4")
    parts = [struct.pack("<Q", words.size)]
    for start in range(0, words.size, CHUNK):
        octets = words[start : start + CHUNK].view(np.uint8).reshape(-1, 4)
        each = np.unpackbits(octets, axis=1, bitorder="little")[:, :bits]
        parts.append(np.packbits(each.ravel(), bitorder="little").tobytes())
    return b"".join(parts)
