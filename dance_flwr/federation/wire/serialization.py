"""The tensors of a message as one array: Flower sends each array, and each part of it, in a request
of its own, between SuperLink and SuperNode and once more between SuperNode and ClientApp.

Safetensors, so that names, dtypes and shapes travel with the numbers; nothing is executed to read
it.
"""

from collections.abc import Callable, Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dance_flwr.federation.wire.keys import PACKED
from dance_flwr.federation.wire.messages import with_content


def packed(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with each ArrayRecord as one array of bytes, a record that several share
    packed once.
    """
    made: dict[int, tuple[ArrayRecord, ArrayRecord]] = {}

    def once(record: ArrayRecord) -> ArrayRecord:
        if id(record) not in made:
            made[id(record)] = record, _pack(record)  # kept, so that no other record gets its id
        return made[id(record)][1]

    return [
        with_content(message, _each(message.content, once))
        if message.has_content() and message.content.array_records
        else message
        for message in messages
    ]


def unpacked(message: Message) -> Message:
    """Return the message that `packed` was given; what cannot be read becomes a record without
    tensors.
    """
    return with_content(message, _each(message.content, _unpack)) if is_packed(message) else message


def is_packed(message: Message) -> bool:
    """Whether `packed` has made this message."""
    return message.has_content() and any(
        PACKED in record for record in message.content.array_records.values()
    )


def answer_packed(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Unpack what the server packed, and answer it alike: a mod of the ClientApp."""
    if not is_packed(message):
        return call_next(message, context)
    return packed([call_next(unpacked(message), context)])[0]


def _each(content: RecordDict, change: Callable[[ArrayRecord], ArrayRecord]) -> RecordDict:
    changed = {name: change(record) for name, record in content.array_records.items()}
    return RecordDict(dict(content) | changed)


def _pack(record: ArrayRecord) -> ArrayRecord:
    # Safetensors orders by dtype and name; the number in front brings the order of the model back.
    tensors = {
        f"{place}.{name}": array.numpy() for place, (name, array) in enumerate(record.items())
    }
    return ArrayRecord({PACKED: Array(np.frombuffer(save(tensors), np.uint8))})


def _unpack(record: ArrayRecord) -> ArrayRecord:
    try:
        tensors = load(record[PACKED].numpy().tobytes())
        numbered = sorted((int(key.partition(".")[0]), key) for key in tensors)
    except (SafetensorError, KeyError, TypeError, ValueError):
        return ArrayRecord()
    return ArrayRecord({key.partition(".")[2]: Array(tensors[key]) for _, key in numbered})
