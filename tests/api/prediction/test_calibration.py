"""Temperature scaling: hand-computed errors, a known temperature found again, classes that stay."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.api.prediction.calibration import Calibration, calibration_error
from dance_flwr.data.graphs.graph import TRAIN, VAL


def client(probs, labels, split=None):
    """What `fit` needs of a client, which predicts these rows."""
    split = torch.full((len(labels),), VAL) if split is None else split
    data = SimpleNamespace(
        split=split, labels=labels, card=SimpleNamespace(class_names=range(probs.size(1)))
    )
    return SimpleNamespace(data=data, predict=lambda info, nodes: {"deployed": probs[nodes]})


def test_the_error_is_that_of_a_calculation_by_hand():
    probs = torch.tensor([[0.9, 0.1], [0.95, 0.05], [0.4, 0.6], [0.45, 0.55]])
    labels = torch.tensor([0, 1, 1, 1])
    # Bins of a fifth: [0.8, 1] holds rows 0 and 1, [0.4, 0.6) row 3, [0.6, 0.8) row 2.
    expected = (abs(1 - 1.85) + abs(1 - 0.6) + abs(1 - 0.55)) / 4
    assert calibration_error(probs, labels, bins=5) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found_again(temperature):
    draws = torch.Generator().manual_seed(0)
    true = torch.softmax(2 * torch.randn(20_000, 4, generator=draws), dim=1)
    labels = torch.multinomial(true, 1, generator=draws).flatten()
    told = torch.softmax(true.log() * temperature, dim=1)  # too sure above 1
    found = Calibration.fit(
        [client(told[:5000], labels[:5000]), client(told[5000:], labels[5000:])]
    )
    assert found.temperature == pytest.approx(temperature, rel=0.05) and found.nodes == 20_000
    assert found.error_after < 0.02


def test_only_validation_nodes_with_a_label_count():
    probs, labels = torch.rand(300, 2), torch.tensor([0, -1, 1]).repeat(100)
    probs = probs / probs.sum(dim=1, keepdim=True)
    split = torch.tensor([VAL, VAL, TRAIN]).repeat(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that tell nothing
        assert Calibration.fit([client(probs, labels, split)]).nodes == 100


@pytest.mark.parametrize("nodes", [0, 1, 99])
def test_a_few_nodes_do_not_change_a_probability(nodes):
    probs = torch.tensor([[0.6, 0.4]]).expand(nodes, 2)
    with pytest.warns(UserWarning, match=f"at least 100 labelled .* found {nodes};"):
        assert Calibration.fit([client(probs, torch.zeros(nodes, dtype=int))]) == Calibration()


def test_a_temperature_at_its_bound_is_a_warning():
    probs = torch.tensor([[0.6, 0.4]]).expand(200, 2)  # never wrong, never sure
    with pytest.warns(UserWarning, match=r"ends at its bound, 0\.1;"):
        assert Calibration.fit([client(probs, torch.zeros(200, dtype=int))]).nodes == 200


def test_the_error_is_that_of_nodes_that_did_not_fit():
    """Half of the nodes are always right, the other half always wrong: no T helps across."""
    probs = torch.tensor([[0.9, 0.1]]).expand(400, 2)
    labels = torch.arange(400) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = Calibration.fit([client(probs, labels)])
    assert fitted.error_before == pytest.approx(0.4, abs=1e-6)
    assert fitted.error_after > 0.4


@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5),
    temperature=st.floats(0.1, 10),
)
def test_the_predicted_class_stays(rows, temperature):
    probs = torch.softmax(4 * torch.tensor(rows, dtype=torch.float64), dim=1)
    scaled = Calibration(temperature).apply(probs)
    best = probs.max(dim=1).values
    chosen = scaled.argmax(dim=1)
    assert torch.allclose(probs.gather(1, chosen[:, None])[:, 0], best)
    assert torch.allclose(scaled.sum(dim=1), torch.ones(len(rows), dtype=torch.float64))
