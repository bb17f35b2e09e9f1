"""Sec. 3.3: gates, context, chunk weights and evidence text, against the loops of Alg. 3."""

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import example, given
from oracles import evidence as oracle
from support.builders import SHAPE, Client, clients, lists, make_client, split

from dance_flwr.client_data.text_table import pool_chunks
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.model import DanceModel, PaperModel
from dance_flwr.dance.text import weigh_chunks


def maps(model: DanceModel) -> dict[str, torch.Tensor]:
    """W_q, W_k and W_s of eq:neighbor_score and eq:chunk_similarity, which divide by sqrt(d)."""
    query, chunk = model.query.weight, model.chunk_query.weight
    if isinstance(model, PaperModel):
        return {"query": query, "key": model.key.weight, "chunk_query": chunk}
    # U^T takes the place of W_k and U A_s that of W_s, over sqrt(w).
    texts, shrink = model.backbone.text_weight(), sqrt(SHAPE.text_dim / query.size(0))
    return {"query": shrink * query, "key": texts, "chunk_query": shrink * texts.T @ chunk}


def expected(client: Client) -> list[dict]:
    config, model = client.config, client.model
    weights = {name: array.detach().numpy() for name, array in maps(model).items()}
    weights["hop_logits"] = model.hop_logits.tolist()
    bank = (
        client.table.chunks.numpy(),
        client.table.chunks_of.ptr.tolist(),
        client.table.nodes.numpy(),
    )
    return [
        oracle.condense(
            v,
            client.hidden[v].numpy(),
            client.graph,
            bank,
            client.difficulty.tolist(),
            weights,
            (config.hop0_budget, config.hop1_budget, config.hop2_budget),
            config.hop2_pool,
            config.chunk_budget,
            config.mix,
            config.anchor_temperature,
        )
        for v in client.nodes.tolist()
    ]


def positive(index, weights) -> dict[int, float]:
    return {i: weight for i, weight in zip(index, weights, strict=True) if weight > 0}


def assert_same(found: dict[int, float], wanted: dict[int, float]) -> None:
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, abs=1e-9)


@given(client=clients())
def test_evidence_is_that_of_the_loops(client):
    selection = client.select()
    text, fused_text = client.texts(selection)
    sums = {"context": selection.context, "text": text, "fused_text": fused_text}
    for row, twin in enumerate(expected(client)):
        for hop in range(3):
            index = lists(selection.hops[hop])[row]
            assert index == twin["candidates"][hop]
            gate = split(selection.gates[hop], selection.hops[hop].ptr)[row]
            assert_same(positive(index, gate), twin["gates"][hop])
        chunks = lists(selection.chunks)[row]
        assert chunks == twin["offered"]
        assert_same(
            positive(chunks, split(selection.chunk_weights, selection.chunks.ptr)[row]),
            twin["chunks"],
        )
        for name, values in sums.items():
            np.testing.assert_allclose(values[row].numpy(), twin[name], atol=1e-9)


@given(client=clients())
def test_pooling_is_softmax_attention_of_the_mean_chunk(client):
    chunks, ptr = client.table.chunks, client.table.chunks_of.ptr.tolist()
    loops = [oracle.pool(chunks[a:b].numpy()) for a, b in pairwise(ptr)]
    np.testing.assert_allclose(pool_chunks(chunks, client.table.chunks_of.ptr), loops, atol=1e-5)


# Its gates among the selected alone make another context, which rejects a chunk.
REJECTS = make_client(
    *(3190, 18, 0.4, 30.0),
    DanceConfig(
        paper_matrices=True,
        fan_out=0,
        hop1_budget=2,
        hop2_budget=0,
        hop2_pool=1,
        chunk_budget=2,
        mix=0.0,
        anchor_temperature=0.1,
    ),
)


@example(client=REJECTS)
@given(client=clients())
def test_frozen_candidates_are_the_selection_and_select_themselves_again(client):
    selection = client.select()
    frozen = selection.frozen()
    for hop in range(3):
        assert torch.equal(
            frozen.hops[hop].index, selection.hops[hop].index[selection.gates[hop] > 0]
        )
    assert torch.equal(frozen.chunks.index, selection.chunks.index[selection.chunk_weights > 0])
    assert all(bool((gates > 0).all()) for gates in client.reweigh(frozen).gates)
    # Chunks follow from the context, so that they select themselves in the one of the selection.
    hidden = client.hidden[frozen.nodes]
    weights = weigh_chunks(client.reader(), hidden, selection.context, frozen.chunks)
    assert bool((weights > 0).all())


@given(client=clients())
def test_rows_taken_from_candidates_carry_their_own_evidence(client):
    whole = client.select()
    rows = torch.arange(whole.nodes.numel()).flip(0)[:3]
    fused = client.texts(whole)[1][rows]
    for part in (whole.take(rows), client.reweigh(whole.take(rows))):
        torch.testing.assert_close(client.texts(part)[1], fused, atol=1e-12, rtol=0)
