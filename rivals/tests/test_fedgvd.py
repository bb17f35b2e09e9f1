"""FedGVD: class statistics, united graphs and teaching against naive twins; limits of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dance_flwr_rivals.condensation.graphs import Condensed
from dance_flwr_rivals.fedgvd import FedGvdConfig
from dance_flwr_rivals.fedgvd.client import condensed_loss
from dance_flwr_rivals.fedgvd.server import teach, unite
from dance_flwr_rivals.fedgvd.simgc import (
    StatisticsMatching,
    align_loss,
    class_statistics,
    draw_features,
    smooth_loss,
    train_teacher,
)
from hypothesis import given
from hypothesis import strategies as st
from rival_support.blocks import blocks as blocks  # a stochastic block model of 90 nodes
from rival_support.blocks import draw, labels_of
from support.altered import unlike
from support.graphs import TEXT_DIM
from support.models import equal
from torch.nn import functional as F

from dance_flwr.federation.server.replies import statistics_of
from dance_flwr.federation.wire.keys import NEEDS_INITIAL_UPLOAD, STATISTICS
from dance_flwr.federation.wire.messages import config_of, payload_of
from dance_flwr.federation.wire.tensors import arrays_of
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.seeding import seeded

SHAPE = ModelShape(text_dim=12, hidden_dim=8, classes=3)
FEW = FedGvdConfig(teacher_width=8, teacher_steps=20, steps=6)
KEYS = {"method": "fedgvd", "clients": 3}


def graph(sizes, seed=0, density=0.4, dim=12):
    """Return a condensed graph with so many rows of each class."""
    labels = labels_of(*sizes)
    upper = torch.triu(
        torch.rand(len(labels), len(labels), generator=draw(seed)) < density, 1
    ).float()
    return Condensed(
        labels, torch.randn(len(labels), dim, generator=draw(seed + 1)), upper + upper.T
    )


# Condensation


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 10**6))
def test_class_statistics_are_those_of_the_loops(sizes, seed):
    labels = labels_of(*sizes)
    values = torch.randn(len(labels), 3, generator=draw(seed)).double()
    mean, deviation = class_statistics(values, labels, len(sizes))
    for number, size in enumerate(sizes):
        rows = values[labels == number]
        torch.testing.assert_close(mean[number], rows.mean(0) if size else torch.zeros(3).double())
        torch.testing.assert_close(
            deviation[number], rows.std(0) if size > 1 else torch.zeros(3).double()
        )


@given(st.integers(0, 10**6))
def test_losses_are_those_of_the_loops(seed):
    ours, theirs = labels_of(2, 1, 0, 3), labels_of(5, 4, 0, 1)
    left, right = (
        torch.randn(len(labels), 3, generator=draw(seed)).double() for labels in (ours, theirs)
    )
    quotas = torch.tensor([2, 1, 0, 3])
    both = (torch.tensor([5, 4, 0, 1]) > 1) & (quotas > 1)
    actual = align_loss(
        class_statistics(left, ours, 4),
        class_statistics(right, theirs, 4),
        both,
        quotas / quotas.max(),
    )
    expected = 0.0
    for number, weight in ((0, 2), (1, 1), (3, 3)):
        a, b = left[ours == number], right[theirs == number]
        expected += weight / 3 * float((a.mean(0) - b.mean(0)).square().mean())
        if min(len(a), len(b)) > 1:
            expected += weight / 3 * float((a.std(0) - b.std(0)).square().mean())
    assert float(actual) == pytest.approx(expected / 2)
    adjacency = torch.rand(6, 6, generator=draw(seed)).double()
    pairs = [(i, j) for i in range(6) for j in range(6)]
    terms = [adjacency[i, j] * (left[i] - left[j]).square().mean() for i, j in pairs]
    assert float(smooth_loss(left, adjacency)) == pytest.approx(float(sum(terms) / adjacency.sum()))
    assert float(smooth_loss(left, 0 * adjacency)) == 0


def test_the_teacher_is_the_best_on_validation_and_frozen(blocks):
    real, truth, _ = blocks
    nodes = torch.nonzero(real.labels < 0).flatten()
    teacher = train_teacher(real, 3, replace(FEW, teacher_steps=100), truth, nodes)
    with torch.no_grad():
        assert (
            float((teacher(real.propagated()[nodes]).argmax(1) == truth[nodes]).float().mean())
            > 0.8
        )
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    torch.manual_seed(3)
    first = train_teacher(real, 3, replace(FEW, teacher_steps=10), truth, nodes[:0])
    with torch.no_grad():
        said = first(real.propagated()).argmax(1)
    for checked, stored in ((torch.arange(90), True), (nodes[:0], False)):
        torch.manual_seed(3)
        later = train_teacher(real, 3, replace(FEW, teacher_steps=100), said, checked)
        assert equal(first.state_dict(), later.state_dict()) == stored, (
            "without validation nodes it is the last one"
        )


def test_features_start_as_noise_of_their_class(blocks):
    real, *_ = blocks
    known = real.labels >= 0
    features, labels = real.features[known], real.labels[known]
    rows = torch.full((4000,), 1)
    actual = draw_features(features, labels, rows, 3, draw())
    own = features[labels == 1]
    torch.testing.assert_close(actual.mean(0), own.mean(0), atol=0.15, rtol=0)
    torch.testing.assert_close(actual.std(0), own.std(0), atol=0.15, rtol=0)
    nearest = F.cosine_similarity(actual[:, None], own[None], dim=2).max()
    assert float(nearest) < 0.99, "no row of the client"
    lonely = draw_features(features[:1], torch.tensor([2]), torch.tensor([2]), 3, draw())
    assert torch.isfinite(lonely).all() and not lonely.allclose(features[:1], atol=0.1)


def aligning(real, truth, quotas=(3, 3, 3), **changes):
    own = replace(FEW, **changes)
    return StatisticsMatching(
        real, torch.tensor(quotas), train_teacher(real, 3, own, truth, torch.arange(0)), own, draw()
    )


def test_the_loss_falls_and_turns_are_taken(blocks):
    real, truth, _ = blocks
    actual = aligning(real, truth, feature_rate=0.05, adjacency_rate=0.01)
    features = [actual.features.detach().clone()]
    weights = [actual.pairs.first.weight.detach().clone()]
    seen = []
    for number in range(150):
        loss = actual.step(number)
        seen.append(loss)
        if number in (9, 49):
            features.append(actual.features.detach().clone())
            weights.append(actual.pairs.first.weight.detach().clone())
    assert features[0].equal(features[1]) and not features[1].equal(features[2])
    assert not weights[0].equal(weights[1]) and weights[1].equal(weights[2])
    assert seen[-1] < seen[0] / 2, (seen[0], seen[-1])


def test_edges_are_drawn_by_their_weights(blocks):
    real, truth, _ = blocks
    actual = aligning(real, truth)
    with torch.no_grad():
        chances = actual.pairs(F.layer_norm(actual.features, (12,)))
    drawn = torch.stack([actual.snapshot().adjacency for _ in range(400)])
    assert set(drawn.unique().tolist()) == {0.0, 1.0} and drawn.equal(drawn.transpose(1, 2))
    assert not drawn.diagonal(dim1=1, dim2=2).any()
    torch.testing.assert_close(drawn.mean(0), chances, atol=0.12, rtol=0)


# The united graph


def test_a_union_by_hand():
    """Two nodes with an edge, none, one node: nodes 0 1 | | 2, coordinators 3 4 5."""
    pair = Condensed(
        torch.tensor([0, 1]), torch.zeros(2, 4), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    )
    none = Condensed(torch.empty(0, dtype=torch.int64), torch.zeros(0, 4), torch.zeros(0, 0))
    one = Condensed(torch.tensor([2]), torch.zeros(1, 4), torch.zeros(1, 1))
    actual = unite([pair, none, one])
    dense = torch.zeros(6, 6).index_put((actual.rows, actual.cols), actual.weights, accumulate=True)
    reference = torch.zeros(6, 6)
    for i, j in [(0, 1), (0, 3), (1, 3), (2, 5), (3, 4), (3, 5), (4, 5)]:
        reference[i, j] = reference[j, i] = 1
    assert dense.equal(reference) and actual.sizes == (2, 0, 1)
    assert actual.labels.tolist() == [0, 1, 2, -1, -1, -1]
    assert actual.features[3:].eq(1).all() and not actual.features[:3].any()


# The client's loss


def test_the_loss_of_condensed_rows_by_hand():
    logits, server_logits = (
        torch.tensor([[0.0, 0.0], [2.0, 0.0]]),
        torch.tensor([[1.0, 0.0], [2.0, 0.0]]),
    )
    entropy = (np.log(2) + np.log(1 + np.exp(2))) / 2
    config = FedGvdConfig(condensed_weight=0.5, teaching_weight=2.0)
    assert float(condensed_loss(logits, torch.tensor([0, 1]), None, config)) == pytest.approx(
        0.5 * entropy
    )
    actual = condensed_loss(logits, torch.tensor([0, 1]), server_logits, config)
    assert float(actual) == pytest.approx(0.5 * entropy + 2 * 0.25)


# The method


@pytest.fixture(scope="module")
def finished(run):
    return run(**KEYS)


def by_client(finished, up=True):
    """Return the training messages of each client, in order."""
    actual = {}
    for message in finished.messages:
        node = message.metadata.src_node_id if up else message.metadata.dst_node_id
        if node and message.metadata.message_type == "train" and message.has_content():
            actual.setdefault(node - 1, []).append(message)
    return actual


def test_a_client_is_sent_the_networks_logits_of_its_own_rows(finished):
    """Recomputed without a server side, for rounds 1 and 2."""
    sent = [statistics_of(replies[0]) for _, replies in sorted(by_client(finished).items())]
    graphs = [Condensed(one["labels"], one["features"], one["adjacency"]) for one in sent]
    with seeded(0, "global"):
        model = PlainModel(ModelShape(TEXT_DIM, 8, 3), "gcn", 0.5)
    config = FedGvdConfig.of(finished.config)
    for round_ in (1, 2):
        server_logits = teach(model, unite(graphs), config.server_epochs, config.server_rate)
        for client, messages in sorted(by_client(finished, up=False).items()):
            assert not payload_of(messages[0])
            assert equal(payload_of(messages[round_]), {"logits": server_logits[client]})
    assert finished.result["history"][0]["seconds"]["teach"] > 0


def test_a_client_that_comes_late_uploads_then(run):
    actual = run(**KEYS | {"rounds": 4, "client_fraction": 0.34})
    for replies in by_client(actual).values():
        assert [bool(statistics_of(reply)) for reply in replies] == [True] + [False] * (
            len(replies) - 1
        )


def test_an_upload_that_is_no_graph_is_skipped_and_requested_again(run):
    def lopsided(reply):
        sent = statistics_of(reply)
        sent["adjacency"][0, 1] += 0.5
        reply.content[STATISTICS] = arrays_of(sent)
        return reply

    actual = run(**KEYS, app=unlike({1}, {1}, lopsided), min_valid_replies=2)
    (client, reason), *others = actual.result["history"][0]["absent"].items()
    assert client == "1" and "expected a symmetric adjacency" in reason and not others
    down = by_client(actual, up=False)
    asked = [config_of(message).get(NEEDS_INITIAL_UPLOAD, False) for message in down[1]]
    assert asked == [True, True, False] and [bool(payload_of(message)) for message in down[1]] == [
        False,
        False,
        True,
    ]
    assert [bool(payload_of(message)) for message in down[0]] == [False, True, True]
