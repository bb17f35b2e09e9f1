"""Small text graphs in three classes, and small settings."""

import hashlib
import os

import numpy as np

_WORDS = {
    "astronomy": "comet galaxy nebula orbit planet telescope quasar eclipse meteor starlight",
    "cooking": "butter garlic oven pastry saffron simmer skillet vinegar whisk cinnamon",
    "sailing": "anchor harbour keel mast rudder sailcloth starboard tiller windward halyard",
}
WORDS = {name: words.split() for name, words in _WORDS.items()}

CLASSES = tuple(sorted(WORDS))

TEXT_DIM = 64  # of the encoder in `small_encoder`

# DANCE_TEST_DEVICE=cuda makes runs of the suite use the first CUDA device.
TEST_DEVICE = os.environ.get("DANCE_TEST_DEVICE", "cpu")
RUN_DEVICE = "cpu" if TEST_DEVICE == "cpu" else "auto"

# Keys of the `dance` fixture beside those of `SMALL`: its packs are of every round.
EVERY_ROUND = {"dance_text_refresh_every": 1}

SMALL = {
    "rounds": 3,
    "clients": 3,
    "hidden-dim": 8,
    "chunk-tokens": 16,
    "max-chunks": 4,
    "local-epochs": 2,
    "encoder-precision": "float32",
    "device": RUN_DEVICE,
    "node-timeout": 1.0,
    "condensation-ratio": 0.25,
    "dance.prototypes": 2,
    "dance.candidates": 4,
    "llm.backend": "stub",
}


def node_id(number: int) -> str:
    """An id that occurs nowhere by accident."""
    return f"zq{number:03d}{hashlib.sha256(str(number).encode()).hexdigest()[:10]}"


def sentences(rng: np.random.Generator, words: list[str], count: int) -> str:
    """Sentences of seven words, each about as long as a chunk."""
    return " ".join(" ".join(rng.choice(words, 7)).capitalize() + "." for _ in range(count))


def text_graph(name, ids, texts, labels, pairs, split=None, names=CLASSES):
    """A `TextGraph`, by default in the classes of WORDS; `labels` are numbers, -1 = unknown."""
    from dance_flwr.data.graphs.graph import TextGraph, csr_from_pairs

    ends = np.array(pairs, np.int64).reshape(-1, 2)
    indptr, indices = csr_from_pairs(ends[:, 0], ends[:, 1], len(ids))
    return TextGraph(
        name=name,
        ids=np.array(ids),
        texts=list(texts),
        labels=np.array(labels, np.int64),
        class_names=names,
        indptr=indptr,
        indices=indices,
        split=np.zeros(len(ids), np.uint8) if split is None else np.array(split, np.uint8),
    )


def knowledge_graph(graph):
    """A graph with a relation, a description and a weight on about two of three edges.

    The first edge has two texts, one listed from its target.
    """
    from dataclasses import replace

    from dance_flwr.data.graphs.edges import EdgeTexts

    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    once = np.flatnonzero((source < graph.indices) & ((source + graph.indices) % 3 > 0))
    low, high = source[once], graph.indices[once]
    words = [sorted(WORDS)[label] for label in graph.labels[low]]
    texts = [
        f"relates to: {WORDS[name][a % 10]} and {WORDS[name][b % 10]}, relation {a}-{b}."
        for name, a, b in zip(words, low.tolist(), high.tolist(), strict=True)
    ]
    edge_texts = EdgeTexts(
        np.append(low, high[0]), np.append(high, low[0]), (*texts, "The way back of the first.")
    )
    pairs = np.minimum(source, graph.indices) + np.maximum(source, graph.indices)
    weights = (1 + pairs % 4).astype(np.float32)
    return replace(graph, weights=weights, edge_texts=edge_texts)
