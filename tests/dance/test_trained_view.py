"""Pseudo-labels and difficulty come from a view that the loss trains; the prior is no parameter."""

import pytest
import torch

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import predict, trained_prediction
from dance_flwr.dance.passes import DanceClient, plain_pass
from dance_flwr.federation.client.client import load_at, open_client
from dance_flwr.runs.result import load_model


@pytest.fixture(scope="module")
def paper(run):
    """A client of a finished run of the paper's rules, under the final model."""
    done = run(paper=True, rounds=4)
    data = done.data(0)
    client = open_client(data.folder, done.settled)
    load_at(data, client.model, load_model(done.folder), done.config)
    return DanceClient(client.model, data, DanceConfig.of(done.config), data.graph)


def test_under_the_papers_loss_it_is_the_core_view(paper):
    data = paper.data
    assert paper.settings.plain_weight == 0
    plain = plain_pass(paper)
    found = trained_prediction(paper, plain)
    hop2 = plain.difficulty  # what both preselect by
    core = predict(paper)["core"]
    assert not torch.equal(found.difficulty, hop2)
    assert found.hidden.shape == plain.hidden.shape
    agreement = (found.predicted == core.argmax(1)).float().mean()
    assert agreement > 0.9  # difficulty decides a few candidates at hop 2
    known = data.labels >= 0
    right = [(p.predicted == data.labels)[known].float().mean() for p in (found, plain)]
    assert right[0] > right[1], "the plain head has not seen t_v"


def test_the_prior_is_read_at_every_head_and_uploaded_by_none(run):
    done = run(method="dance", rounds=1)
    data = done.data(0)
    client = open_client(data.folder, done.settled)
    state = load_model(done.folder)
    load_at(data, client.model, state, done.config)
    model = client.model.eval()
    expected = 0.5 * data.log_class_shares
    torch.testing.assert_close(model.prior, expected)
    assert state.keys() == model.state_dict().keys() and "prior" not in state
    hidden = torch.zeros(2, model.head_graph.in_features)
    text, fused = torch.zeros(2, data.text_dim), torch.zeros(2, model.head_fused.in_features)
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
