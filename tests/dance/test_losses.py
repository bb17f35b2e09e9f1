"""Fusion, loss, noise, propagation operators, and that a prediction rests on its evidence."""

import math

import numpy as np
import pytest
import torch
from support.builders import SHAPE, make_client
from support.graphs import EVERY_ROUND

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.losses import (
    Labelled,
    Logits,
    condensed_loss,
    laplace_like,
    perturb,
    supervised_nodes,
)
from dance_flwr.dance.weighing import DenseSelection, weigh


@pytest.fixture(params=[True, False], ids=["paper's matrices", "backbone's map"])
def client(request):
    config = DanceConfig(chunk_budget=4, paper_matrices=request.param)
    return make_client(3, 14, 0.2, 1.0, config)


def trained_text(client, selection):
    """t~_v as training weighs it; no node has a label."""
    dense = DenseSelection.of(client.reader(), selection.frozen().padded)
    texts, _ = weigh(client.reader(), client.hidden[selection.nodes], dense)
    return texts[:, 1]


def softmax(row):
    powers = [math.exp(value - max(row)) for value in row]
    return [value / sum(powers) for value in powers]


def test_fusion_is_the_equation(client):
    """x = LN(W_g g + sigma(w^T [g || t]) W_t t), element by element; without W_t, u = U^T LN(t)
    takes the place of t and of W_t t.
    """
    model, d = client.model, SHAPE.text_dim
    paper = client.config.paper_matrices
    width = d if paper else SHAPE.hidden_dim
    hidden, text = torch.randn(3, SHAPE.hidden_dim).double(), torch.randn(3, d).double()
    with torch.no_grad():
        fused = model.fuse(hidden, text)
        for g, t, x in zip(hidden, text, fused, strict=True):
            if paper:
                spread = model.fuse_text.weight @ t
            else:
                t = (t - t.mean()) / math.sqrt(float(t.var(correction=0)) + 1e-5)
                spread = t = model.backbone.first.lin.weight @ t
            gate = 1 / (1 + math.exp(-float(model.fuse_gate.weight[0] @ torch.cat([g, t]))))
            raw = [float(model.fuse_graph.weight[i] @ g + gate * spread[i]) for i in range(width)]
            mean = sum(raw) / width
            scale = math.sqrt(sum((value - mean) ** 2 for value in raw) / width + model.norm.eps)
            np.testing.assert_allclose(x, [(value - mean) / scale for value in raw], atol=1e-10)


@pytest.mark.parametrize(
    "labels", [[0, 2, -1, 3], [-1, -1, -1, -1]], ids=["three labelled", "none labelled"]
)
def test_loss_is_the_equation(client, labels):
    """CE over labelled nodes of two heads, KL(o^g || o^t) over all; without labels the divergence
    alone.
    """
    model, settings = client.model, DanceConfig(align_weight=0.7)
    selection = client.select().take(torch.arange(4))
    with torch.no_grad():
        hidden = client.hidden[selection.nodes]
        features = model.fuse(hidden, client.texts(selection)[1])
        core = torch.randn(4, SHAPE.classes).double()
        views = (
            model.graph_logits(hidden),
            model.text_logits(model.read(trained_text(client, selection))),
            model.fused_logits(features),
        )
        labelled = Labelled.among(torch.tensor(labels))
        loss = condensed_loss(Logits(*views, core), labelled, settings)
        graph, text, fused = (view.tolist() for view in views)
    divergence = 0.0
    for g, t in zip(map(softmax, graph), map(softmax, text), strict=True):
        divergence += sum(p * math.log(p / q) for p, q in zip(g, t, strict=True)) / 4
    expected = 0.7 * divergence
    known = [i for i, label in enumerate(labels) if label >= 0]
    for logits in (fused, core.tolist()):
        expected += sum(-math.log(softmax(logits[i])[labels[i]]) / len(known) for i in known)
    assert float(loss) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("make", [Labelled.among, Labelled.masked])
@pytest.mark.parametrize("classes", [None, [3.0, 1.0, 0.5]])
@pytest.mark.parametrize("mass", [None, [4.0, 1.0, 2.5, 7.0]])
def test_a_cross_entropy_is_weighted_by_mass_and_class(mass, classes, make):
    """sum w CE / sum w with w = mass * weight of the class; the unlabelled node has no part."""
    logits, labels = torch.randn(4, 3).double(), [2, -1, 0, 2]
    masses, weights = (None if row is None else torch.tensor(row) for row in (mass, classes))
    loss = make(torch.tensor(labels), weights, masses).cross_entropy(logits)
    terms = [
        ((mass[i] if mass else 1) * (classes[label] if classes else 1), label, row)
        for i, (label, row) in enumerate(zip(labels, logits.tolist(), strict=True))
        if label >= 0
    ]
    total = sum(weight * -math.log(softmax(row)[label]) for weight, label, row in terms)
    assert float(loss) == pytest.approx(total / sum(weight for weight, _, _ in terms))


@pytest.mark.parametrize("wide", [True, False])
def test_the_plain_term_reads_the_labelled_core_and_by_choice_its_labelled_evidence(client, wide):
    selection = client.select().take(torch.arange(4))
    labels = torch.arange(client.hidden.size(0)) % 3 - 1
    found = supervised_nodes(selection.padded, labels, DanceConfig(evidence_supervision=wide))
    wanted = set(selection.nodes.tolist())
    if wide:
        for hop in (1, 2):
            chosen = zip(
                selection.hops[hop].index.tolist(), selection.gates[hop].tolist(), strict=True
            )
            wanted |= {node for node, gate in chosen if gate > 0}
    assert sorted(found.tolist()) == sorted(node for node in wanted if labels[node] >= 0)


# Laplace noise on condensed features


def test_rows_keep_the_norm_of_a_layer_norm():
    features = torch.nn.functional.layer_norm(torch.randn(5, 16), (16,))
    noisy = perturb(features, torch.ones(5, 16))
    assert noisy.norm(dim=1).tolist() == pytest.approx([4.0] * 5)
    expected = torch.stack([4 * (row + 1) / (row + 1).norm() for row in features])
    torch.testing.assert_close(noisy, expected)


def test_the_noise_is_laplace_of_scale_b():
    torch.manual_seed(0)
    noise = laplace_like(torch.zeros(400, 500), 0.7)
    assert float(noise.abs().mean()) == pytest.approx(0.7, rel=0.01)  # E|Laplace(0, b)| = b
    assert float(noise.var()) == pytest.approx(2 * 0.7**2, rel=0.02)


def test_noise_on_features_changes_training_and_not_the_messages(run, dance):
    noisy = run(**EVERY_ROUND, dance_feature_noise=2.0)
    assert noisy.result["model_fingerprint"] != dance.result["model_fingerprint"]
    assert [m.metadata.message_type for m in noisy.messages] == [
        m.metadata.message_type for m in dance.messages
    ]
