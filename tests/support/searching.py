"""Search messages for what belongs to clients: strings, vectors, runs of numbers."""

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.summaries.summary import Summaries
from support.graphs import WORDS


@dataclass
class Secrets:
    """What belongs to the clients: strings, vectors of the text bank, choices of the selection."""

    strings: list[bytes]
    vectors: np.ndarray
    traces: list[np.ndarray] = field(default_factory=list)


def secrets_of(finished) -> Secrets:
    """Ids, texts, words, summaries; chunk embeddings and t_u; cores, selected indices, weights."""
    strings, vectors, traces = {word for words in WORDS.values() for word in words}, [], []
    for client in range(finished.config.clients):
        data = finished.data(client)
        ids, texts = data.ids(), data.texts()
        strings |= {*ids, *texts}
        owner = np.repeat(np.arange(len(texts)), np.diff(data.bank.ptr))
        strings |= {texts[u][a:b] for u, (a, b) in zip(owner, data.bank.spans, strict=True)}
        vectors += [data.table.chunks.numpy(), data.table.nodes.numpy()]
        for path in finished.store(client).all_packs():
            packs = Packs.load(path)
            traces += [packs.nodes, packs.confidence]
            for what in ("neighbour", "chunk"):
                ends = getattr(packs, f"{what}_ptr")[1:-1]
                for name in (f"{what}s", f"{what}_weights"):
                    traces += np.split(getattr(packs, name), ends)
        if summaries := Summaries.load(finished.store(client).summaries_path):
            strings |= {one.text for own in summaries.written.values() for one in own}
    return Secrets(
        strings=[text.encode() for text in strings if text],
        vectors=np.concatenate(vectors).astype(np.float64),
        traces=[row.astype(np.float64) for row in traces if len(row) >= 4],
    )


def holds_vector(values: np.ndarray, vectors: np.ndarray) -> bool:
    """Whether any contiguous run of `values` points where one of `vectors` ([m, d]) points, cosine
    above 0.999.
    """
    d = vectors.shape[1]
    if len(values) < d:
        return False
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    runs = sliding_window_view(values.astype(np.float32), d)
    norm = np.linalg.norm(runs, axis=1) + 1e-12
    return bool(((runs @ unit.T).max(axis=1) > 0.999 * norm).any())


def runs_in(values: np.ndarray, traces: list[np.ndarray]) -> list[np.ndarray]:
    """Those of `traces` that stand in `values` as a contiguous run."""
    order = np.argsort(values, kind="stable")
    ordered, found = values[order], []
    first = np.array([trace[0] for trace in traces])
    near = 1e-7 + 1e-5 * np.abs(first)
    lows, highs = np.searchsorted(ordered, first - near), np.searchsorted(ordered, first + near)
    for index in np.flatnonzero(lows < highs):
        trace = traces[index]
        margin = 1e-7 + 1e-5 * np.abs(trace)
        starts = order[lows[index] : highs[index]]
        starts = starts[starts <= len(values) - len(trace)]
        for place in range(1, len(trace)):
            starts = starts[np.abs(values[starts + place] - trace[place]) <= margin[place]]
        if len(starts):
            found.append(trace)
    return found


def sequences(message):
    """Every sequence of numbers in a message: arrays row by row and column by column, lists, and
    scalars in order.
    """
    if not message.has_content():
        return
    for record in message.content.array_records.values():
        for array in record.values():
            yield array.numpy().astype(np.float64).ravel()
            yield array.numpy().astype(np.float64).T.ravel()
    for record in (
        *message.content.metric_records.values(),
        *message.content.config_records.values(),
    ):
        numbers = [np.ravel(value) for value in record.values()]
        numbers = [row.astype(np.float64) for row in numbers if row.dtype.kind in "bif"]
        yield from numbers
        if numbers:
            yield np.concatenate(numbers)
