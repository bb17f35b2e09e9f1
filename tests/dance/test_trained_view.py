"""Pseudo-labels and difficulty come from a view that the loss trains; the prior is no parameter."""

import pytest
import torch

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict, trained_prediction
from dance_flwr.dance.passes import plain_pass
from dance_flwr.federation.client.client import load_at, open_client
from dance_flwr.runs.reader import load_model


@pytest.fixture(scope="module")
def paper(run):
    """A finished run of the paper's rules, and a client of it under the final model."""
    done = run(paper=True, rounds=4)
    site = done.site(0)
    client = open_client(site.folder, done.config)
    load_at(site, client.model, load_model(done.folder), done.config)
    return site, client.model, DanceConfig.of(done.config)


def test_under_the_papers_loss_it_is_the_core_view(paper):
    site, model, settings = paper
    assert settings.plain_weight == 0
    plain = plain_pass(model, site, site.graph)
    found = trained_prediction(model, site, site.graph, settings, plain)
    hop2 = plain.difficulty  # what both preselect by
    core = predict(model, site, settings)["core"]
    assert not torch.equal(found.difficulty, hop2)
    assert found.hidden.shape == plain.hidden.shape
    agreement = (found.predicted == core.argmax(1)).float().mean()
    assert agreement > 0.9  # difficulty decides a few candidates at hop 2
    known = site.labels >= 0
    right = [(p.predicted == site.labels)[known].float().mean() for p in (found, plain)]
    assert right[0] > right[1], "the plain head has not seen t_v"


def test_with_a_plain_term_it_is_the_plain_view(paper):
    site, model, _ = paper
    plain = plain_pass(model, site, site.graph)
    assert trained_prediction(model, site, site.graph, DanceConfig(), plain) is plain


def test_the_prior_is_read_at_every_head_and_uploaded_by_none(run):
    done = run(method="dance", rounds=1)
    site = done.site(0)
    client = open_client(site.folder, done.config)
    state = load_model(done.folder)
    load_at(site, client.model, state, done.config)
    model = client.model.eval()
    expected = 0.5 * site.log_class_shares
    torch.testing.assert_close(model.prior, expected)
    assert state.keys() == model.state_dict().keys() and "prior" not in state
    hidden = torch.zeros(2, model.head_graph.in_features)
    text, fused = torch.zeros(2, site.text_dim), torch.zeros(2, model.head_fused.in_features)
    with torch.no_grad():
        torch.testing.assert_close(
            model.graph_logits(hidden), (model.head_graph.bias + expected).expand(2, -1)
        )
        torch.testing.assert_close(
            model.fused_logits(fused), (model.head_fused.bias + expected).expand(2, -1)
        )
        torch.testing.assert_close(
            model.text_logits(model.read(text)), (model.head_text.bias + expected).expand(2, -1)
        )


def test_shares_of_classes_are_counts_plus_one(run):
    site = run(method="dance", rounds=1).site(0)
    labels = site.labels[(site.split == 1) & (site.labels >= 0)].tolist()
    classes = len(site.card.class_names)
    counts = [labels.count(c) + 1 for c in range(classes)]
    expected = torch.tensor(counts) / (len(labels) + classes)
    torch.testing.assert_close(site.log_class_shares.exp(), expected)
