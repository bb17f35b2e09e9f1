"""The dense form of evidence that is trained, against the one that selects, and its gradients."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import SHAPE, clients, make_client

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import neighbour_labels
from dance_flwr.dance.weighing import TrainedEvidence, weigh

QUICK = settings(max_examples=40, deadline=None)


def one_hot(client):
    """Training labels of two thirds of the nodes, [n, C]."""
    n = client.hidden.size(0)
    known = torch.arange(n) % 3 > 0
    return torch.eye(SHAPE.classes).double()[torch.arange(n) % SHAPE.classes] * known[:, None]


def trained(client, rule, candidates=None, hidden=None):
    """`weigh` of the client's nodes under this `trained_evidence`."""
    config = replace(client.config, trained_evidence=rule)
    candidates = candidates or client.select()
    evidence = client.condense(candidates)
    given = TrainedEvidence.of(candidates, evidence, client.table, one_hot(client), config)
    hidden = client.hidden[candidates.nodes] if hidden is None else hidden
    return weigh(client.model, hidden, given, config)


@QUICK
@given(client=clients(), own=st.booleans())
def test_all_candidates_weigh_what_the_selection_weighs(client, own):
    """Also the labels of the neighbours, and under the ablation without text condensation."""
    client.config = replace(client.config, text_rule="own" if own else "gated")
    candidates = client.select()
    evidence = client.condense(candidates)
    found = trained(client, "candidates", candidates)
    for name in ("text", "fused_text"):
        torch.testing.assert_close(getattr(found, name), getattr(evidence, name))
    torch.testing.assert_close(
        found.labels, neighbour_labels(candidates, evidence, one_hot(client))
    )


@QUICK
@given(client=clients())
def test_the_selection_alone_weighs_the_same_where_no_budget_binds(client):
    wide = replace(client.config, hop1_budget=99, hop2_budget=99, hop2_pool=99, chunk_budget=999)
    client.config = wide
    found, wanted = trained(client, "selected"), trained(client, "candidates")
    for name in ("text", "fused_text", "labels"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name))


@QUICK
@given(client=clients())
def test_the_selection_alone_stays_within_its_budgets_and_chunks(client):
    """Weights are normalised again among the selected; none is lost and none is new."""
    candidates = client.select()
    config = replace(client.config, trained_evidence="selected")
    evidence = client.condense(candidates)
    given = TrainedEvidence.of(candidates, evidence, client.table, one_hot(client), config)
    sizes = torch.bincount(candidates.chunks.rows()[evidence.chunk_weights > 0])
    *hops, chunks = (given.layout.inside[:, given.layout.part == part] for part in range(4))
    assert chunks.sum(1).tolist() == sizes.tolist()
    assert [mask.sum() for mask in hops] == [(gate > 0).sum() for gate in evidence.gates]
    most = (1, config.hop1_budget, config.hop2_budget, config.chunk_budget)
    assert all(mask.size(1) <= budget for mask, budget in zip((*hops, chunks), most, strict=True))


def texts_with_gradients(client):
    table = client.table
    chunks = table.chunks.clone().requires_grad_()
    client.table = TextTable(chunks, table.chunks_of, table.nodes)
    return chunks


@pytest.mark.parametrize("rule", ["selected", "candidates"])
def test_gradients_reach_candidates_outside_the_budget_only_if_asked(rule):
    """At a small scale entmax supports every candidate; the budgets keep one of each kind."""
    config = DanceConfig(hop1_budget=1, hop2_budget=1, chunk_budget=1)
    client = make_client(3, 20, 0.4, 0.1, config)
    candidates = client.select()
    with torch.no_grad():
        evidence = client.condense(candidates)
    chunks = texts_with_gradients(client)
    trained(client, rule, candidates).fused_text.square().sum().backward()
    kept = candidates.chunks.index[evidence.chunk_weights > 0]
    others = torch.ones(len(chunks), dtype=torch.bool)
    others[kept] = False
    offered = torch.zeros_like(others)
    offered[candidates.chunks.index] = True
    reached = chunks.grad.abs().amax(1) > 0
    assert bool(reached[kept].all()) and bool((offered & others).any())
    assert bool(reached[offered & others].any()) == (rule == "candidates")
    assert not bool(reached[~offered].any())


@pytest.mark.parametrize("paper", [True, False])
@pytest.mark.parametrize("rule", ["selected", "candidates"])
def test_every_selection_parameter_gets_a_gradient(rule, paper):
    config = DanceConfig(hop1_budget=2, hop2_budget=2, chunk_budget=3, paper_matrices=paper)
    client = make_client(3, 20, 0.2, 1.0, config)
    hidden = client.hidden[client.nodes].requires_grad_()
    trained(client, rule, hidden=hidden).fused_text.square().sum().backward()
    own = ["key.weight"] if paper else ["backbone.first.lin.weight"]
    for name in ("query.weight", *own, "chunk_query.weight", "hop_logits"):
        assert bool((dict(client.model.named_parameters())[name].grad != 0).any()), name
    assert bool((hidden.grad != 0).any())


def test_half_precision_texts_are_weighed_in_float32():
    client = make_client(7, 20, 0.2, 1.0, DanceConfig())
    wanted = trained(client, "selected").fused_text
    table = client.table
    client.table = TextTable(table.chunks.half(), table.chunks_of, table.nodes.half())
    client.model.float()
    client.hidden, client.difficulty = client.hidden.float(), client.difficulty.float()
    labels = one_hot(client).float()
    candidates = client.select()
    evidence = client.condense(candidates)
    given = TrainedEvidence.of(candidates, evidence, client.table, labels, client.config)
    found = weigh(client.model, client.hidden[candidates.nodes], given, client.config).fused_text
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, atol=2e-3, rtol=0)
