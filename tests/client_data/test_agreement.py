"""Texts and edges by agreement: naive twins, and what they are for."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import evidence as naive
from support.builders import random_csr, rows_of

from dance_flwr.client_data import agreement
from dance_flwr.client_data.agreement import agreeing_edges, agreeing_texts
from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.nn.ragged import Ragged

CONFIG = ReadingConfig(text_pooling="agreement", edge_gates="agreement", pooled_chunks=3)


def unit(rng, rows, width):
    vectors = rng.standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def made_up(seed, n, density, most_chunks=5, width=6):
    """(table, neighbours) of a random graph; every node has 1 to `most_chunks` chunks."""
    rng = np.random.default_rng(seed)
    ptr = np.concatenate([[0], rng.integers(1, most_chunks + 1, n).cumsum()])
    chunks = torch.tensor(unit(rng, int(ptr[-1]), width))
    return TextTable.from_chunks(chunks, torch.tensor(ptr)), rows_of(random_csr(rng, n, density))


def condensed(table, rows, config=CONFIG):
    return agreeing_texts(table, rows, config, lambda: torch.empty_like(table.nodes))


def naive_texts(table, rows, config):
    chunks, texts = table.chunks.double().numpy(), table.nodes.double().numpy()
    own, near = table.chunks_of.ptr.tolist(), rows.ptr.tolist()
    for _ in range(agreement.PASSES):
        after = []
        for u in range(len(texts)):
            others = [rows.index[i] for i in range(near[u], near[u + 1])] or [u]
            around = sum(texts[w] / np.linalg.norm(texts[w]) for w in others)
            around = around / np.linalg.norm(around)
            mine = chunks[own[u] : own[u + 1]]
            scores = [float(e @ around) / config.text_temperature for e in mine]
            weights = naive.project(naive.entmax(scores), config.pooled_chunks)
            after.append(sum(a * e for a, e in zip(weights, mine, strict=True)))
        texts = np.stack(after)
    return torch.tensor(texts)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 15),
    density=st.sampled_from([0.0, 0.2, 0.6]),
    temperature=st.sampled_from([0.05, 0.3]),
)
def test_texts_equal_those_of_loops(seed, n, density, temperature):
    table, rows = made_up(seed, n, density)
    config = ReadingConfig(text_temperature=temperature, pooled_chunks=3)
    # float64: each pass multiplies what rounding did to the one before
    exact = TextTable.from_chunks(table.chunks.double(), table.chunks_of.ptr)
    exact = TextTable(table.chunks.double(), table.chunks_of, exact.nodes.double())
    expected = naive_texts(exact, rows, config)
    torch.testing.assert_close(condensed(exact, rows, config), expected, atol=1e-5, rtol=1e-4)


def test_an_edge_between_topics_weighs_less_than_one_within():
    texts = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    rows = Ragged(torch.tensor([0, 3, 4, 5, 6]), torch.tensor([1, 2, 3, 0, 0, 0]))
    weights = agreeing_edges(texts, rows, 0.5)
    across = float(np.exp(-2))
    expected = torch.tensor([1.0, across, across, 1.0, across, across])
    torch.testing.assert_close(weights, expected)
