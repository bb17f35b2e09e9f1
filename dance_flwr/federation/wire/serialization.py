"""Pack the tensors of a message into one array.

Flower sends each array, and each part of it, in its own request, from SuperLink to SuperNode and
again from SuperNode to ClientApp. The packed format is safetensors: names, dtypes and shapes travel
with the numbers, and reading it executes no code.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dance_flwr.federation.wire.keys import PACKED
from dance_flwr.federation.wire.messages import with_content
from dance_flwr.federation.wire.tensors import array_fault, numpy_of, record_of


def pack(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with each ArrayRecord as one array of bytes.

    A record that several messages share is packed once.
    """
    packed: dict[int, tuple[ArrayRecord, ArrayRecord]] = {}

    def once(record: ArrayRecord) -> ArrayRecord:
        if id(record) not in packed:
            # Keep the record itself, so that no other one gets its id.
            packed[id(record)] = (record, _pack_record(record))
        return packed[id(record)][1]

    return [_changed(message, once) for message in messages]


def unpack(message: Message) -> Message:
    """Return the message as it was before `pack`; an unreadable record becomes an empty one."""
    return _changed(message, _unpack_record) if is_packed(message) else message


def is_packed(message: Message) -> bool:
    """Whether a message comes from `pack`."""
    return message.has_content() and any(
        PACKED in record for _, record in _arrays_in(message.content)
    )


def answer_packed(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Unpack a packed request and pack its reply: a mod of the ClientApp."""
    if not is_packed(message):
        return call_next(message, context)
    return pack([call_next(unpack(message), context)])[0]


def _changed(message: Message, change: Callable[[ArrayRecord], ArrayRecord]) -> Message:
    records = _arrays_in(message.content) if message.has_content() else ()
    changed = {name: change(record) for name, record in records}
    if not changed:
        return message
    return with_content(message, RecordDict(dict(message.content) | changed))


def _arrays_in(content: RecordDict) -> Iterator[tuple[str, ArrayRecord]]:
    # Why not `array_records`: see `messages.record_in`.
    return ((name, record) for name, record in content.items() if isinstance(record, ArrayRecord))


def _pack_record(record: ArrayRecord) -> ArrayRecord:
    # Safetensors orders by dtype and name; the leading number preserves the order of the model.
    tensors = {
        f"{place}.{name}": array for place, (name, array) in enumerate(numpy_of(record).items())
    }
    return ArrayRecord({PACKED: Array(np.frombuffer(save(tensors), np.uint8))})


def _unpack_record(record: ArrayRecord) -> ArrayRecord:
    if PACKED not in record or array_fault(record[PACKED]):
        return ArrayRecord()
    try:
        tensors = load(record[PACKED].numpy().tobytes())
        numbered = sorted((int(key.partition(".")[0]), key) for key in tensors)
    except (SafetensorError, KeyError, TypeError, ValueError):
        # An empty record breaks the rules of its task, so the reply is refused.
        return ArrayRecord()
    return record_of({key.partition(".")[2]: tensors[key] for _, key in numbered})


def bytes_of(message: Message) -> int:
    """Return the size of a message in bytes: arrays and byte strings, such as masked vectors."""
    if not message.has_content():
        return 0
    arrays, values = 0, list[Any]()
    for record in message.content.values():
        if isinstance(record, ArrayRecord):
            arrays += sum(len(array.data) for array in record.values())
        elif isinstance(record, ConfigRecord):
            values += record.values()
    strings = [part for v in values for part in (v if isinstance(v, list) else [v])]
    return arrays + sum(len(part) for part in strings if isinstance(part, bytes))
