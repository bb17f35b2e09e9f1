"""The dense form of evidence that is trained, against the one that selects, and its gradients."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.builders import SHAPE, clients, make_client

from dance_flwr.client_data.text_table import TextTable
from dance_flwr.config.plugins import CHUNK_RULES
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import neighbour_labels
from dance_flwr.dance.weighing import DenseSelection, Layout, weigh
from dance_flwr.nn.entmax import entmax15


def one_hot(client):
    """Training labels of two thirds of the nodes, [n, C]."""
    n = client.hidden.size(0)
    known = torch.arange(n) % 3 > 0
    return torch.eye(SHAPE.classes).double()[torch.arange(n) % SHAPE.classes] * known[:, None]


def dense(reader, selection):
    """The selection as a round under the reader's `trained-evidence` trains on it."""
    kept = selection.frozen() if reader.settings.trained_evidence == "selected" else selection
    return DenseSelection.of(reader, kept.padded)


def trained(client, rule, selection=None, hidden=None):
    """`weigh` of the client's nodes under this `trained-evidence`: texts and labels by name."""
    selection = selection or client.select()
    config = replace(client.config, trained_evidence=rule)
    reader = replace(client.reader(one_hot(client)), settings=config)
    hidden = client.hidden[selection.nodes] if hidden is None else hidden
    texts, labels = weigh(reader, hidden, dense(reader, selection))
    return SimpleNamespace(fused_text=texts[:, 0], text=texts[:, 1], labels=labels)


@given(client=clients(), own=st.booleans())
def test_all_candidates_weigh_what_the_selection_weighs(client, own):
    """Also the labels of the neighbours, and under the ablation without text condensation."""
    client.config = replace(client.config, text_rule="own" if own else "gated")
    selection = client.select()
    text, fused_text = client.texts(selection)
    found = trained(client, "candidates", selection)
    torch.testing.assert_close(found.text, text)
    torch.testing.assert_close(found.fused_text, fused_text)
    torch.testing.assert_close(found.labels, neighbour_labels(selection, one_hot(client)))


def above_the_mean(scores, inside):
    """A rule of another kind than entmax: equal weights, for scores from the mean of their row."""
    mean = (scores * inside).sum(1) / inside.sum(1)
    above = (scores >= mean[:, None] - 1e-9) & inside
    return above.to(scores) / above.sum(1, keepdim=True)


@pytest.mark.parametrize("name", [*CHUNK_RULES, "above-the-mean"])
@given(client=clients())
def test_selection_and_training_choose_the_same_chunks_by_the_same_scores(name, client):
    """Training weighs all candidates again, as under the paper's rules."""
    scored, weighed = [], []
    rule = CHUNK_RULES.get(name) if name in CHUNK_RULES else above_the_mean

    def spy(scores, inside):
        scored.append(scores[inside])
        found = rule(scores, inside)
        assert bool((found >= 0).all()) and not found[~inside].any()
        torch.testing.assert_close(found.sum(1), torch.ones_like(found[:, 0]))
        return found

    def weights(layout, *arguments):
        weighed.append(of_all(layout, *arguments))
        return weighed[-1]

    of_all = Layout.weights
    with (
        patch.object(CHUNK_RULES, "get", lambda name: spy),
        patch.object(Layout, "weights", weights),
    ):
        selection = client.select()
        trained(client, "candidates", selection)
    of_selection, of_training = scored
    torch.testing.assert_close(of_training, of_selection)
    *_, inside = torch.split(selection.padded.inside, selection.padded.widths, dim=1)
    chunks = weighed[0][:, -inside.size(1) :][inside]
    torch.testing.assert_close(chunks, selection.chunk_weights)
    assert torch.equal(chunks > 0, selection.chunk_weights > 0)


@given(client=clients())
def test_the_selection_alone_weighs_the_same_where_no_budget_binds(client):
    wide = replace(client.config, hop1_budget=99, hop2_budget=99, hop2_pool=99, chunk_budget=999)
    client.config = wide
    found, wanted = trained(client, "selected"), trained(client, "candidates")
    for name in ("text", "fused_text", "labels"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name))


@pytest.mark.parametrize("rule", [entmax15, above_the_mean])
@given(client=clients())
def test_padding_weighs_nothing(rule, client):
    """Also where a rule divides by a row's number of entries, which is 0 in a row of padding."""
    reader, selection = client.reader(one_hot(client)), client.select()
    padded, hidden = selection.padded, client.hidden[selection.nodes]
    wide = padded.widened([width + 1 for width in padded.widths], len(hidden) + 2)
    rows = torch.nn.functional.pad(hidden, (0, 0, 0, 2)).requires_grad_()
    with patch.object(CHUNK_RULES, "get", lambda name: rule):
        found = weigh(reader, rows, DenseSelection.of(reader, wide))
        wanted = weigh(reader, hidden, DenseSelection.of(reader, padded))
    for part, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(part, torch.cat([exact, torch.zeros_like(part[:2])]))
    sum(part.sum() for part in found).backward()
    assert bool(rows.grad.isfinite().all())


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
    selection = client.select()
    chunks = texts_with_gradients(client)
    trained(client, rule, selection).fused_text.square().sum().backward()
    kept = selection.selected_chunks
    others = torch.ones(len(chunks), dtype=torch.bool)
    others[kept] = False
    offered = torch.zeros_like(others)
    offered[selection.chunks.index] = True
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
