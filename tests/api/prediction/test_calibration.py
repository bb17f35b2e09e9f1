"""Temperature scaling: hand-computed errors, a known temperature found again, classes that stay."""

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
    probs, labels = torch.full((3, 2), 0.5), torch.tensor([0, -1, 1])
    split = torch.tensor([VAL, VAL, TRAIN])
    assert Calibration.fit([client(probs, labels, split)]).nodes == 1
    assert Calibration.fit([client(probs, labels, torch.full((3,), TRAIN))]) == Calibration()


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
