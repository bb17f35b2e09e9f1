"""Temperature scaling from sums: hand-computed errors, a known temperature found again, bounds."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.nn.calibration import (
    BINS,
    TEMPERATURES,
    Calibration,
    confidence_gaps,
    temperature_losses,
)
from dance_flwr.nn.mixture import MAX_LOSS


def summed(*clients):
    """What a server gets: (probabilities, labels) of validation and of test nodes by client."""
    val = [temperature_losses(*each["val"]) for each in clients]
    test = [confidence_gaps(*each["test"]) for each in clients]
    nodes = [sum(len(each[split][1]) for each in clients) for split in ("val", "test")]
    gaps = [sum(column) for column in zip(*test, strict=True)]
    return Calibration.fit(val, nodes[0], gaps, nodes[1])


def drawn(temperature, nodes=20_000, seed=0):
    """Probabilities that are too sure above a temperature of 1, and labels."""
    draws = torch.Generator().manual_seed(seed)
    true = torch.softmax(2 * torch.randn(nodes, 4, generator=draws), dim=1)
    labels = torch.multinomial(true, 1, generator=draws).flatten()
    return torch.softmax(true.log() * temperature, dim=1), labels


@pytest.mark.parametrize("wanted", [0, 23])
def test_one_of_five_chooses_no_temperature_that_is_beyond_the_others(wanted):
    """It says that one temperature has no loss, and every other one the largest."""
    honest = [temperature_losses(*drawn(1 / t, 500, seed)) for seed, t in enumerate((1, 2, 2, 3))]
    best = [TEMPERATURES[min(range(25), key=own.__getitem__)] for own in honest]
    lie = [MAX_LOSS * 500 * (place != wanted) for place in range(25)]
    found = Calibration.fit([*honest, lie], 2500, [0] * 25 * BINS, 0).temperature
    assert min(best) <= found <= max(best)


def test_probabilities_that_are_right_are_left_alone():
    """By chance some temperature is always best: a test at 5 % keeps it from being applied."""
    drawn_once = [drawn(1.0, nodes=300, seed=seed) for seed in range(100)]
    fitted = [summed({"val": each, "test": each}).temperature for each in drawn_once]
    assert sum(temperature != 1 for temperature in fitted) <= 12
    wrong = [drawn(2.0, nodes=300, seed=seed) for seed in range(20)]
    assert all(summed({"val": each, "test": each}).temperature > 1 for each in wrong)


@pytest.mark.parametrize("nodes", [0, 1, 99])
def test_a_few_nodes_do_not_change_a_probability(nodes, caplog):
    probs = torch.tensor([[0.6, 0.4]]).expand(nodes, 2)
    labels = torch.zeros(nodes, dtype=torch.int64)
    with caplog.at_level(logging.WARNING, "flwr"):
        fitted = summed({"val": (probs, labels), "test": (probs, labels)})
    warning = f"expected at least 100 labelled validation nodes, found {nodes};"
    assert (warning in caplog.text) == (nodes > 0)  # without any, no round was validated
    assert (fitted.temperature, fitted.nodes) == (1.0, 0)
    assert fitted.error_after == (pytest.approx(0.4, abs=1e-6) if nodes else None)
    assert fitted.apply(probs) is probs


@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5),
    temperature=st.sampled_from(TEMPERATURES),
)
def test_the_predicted_class_stays(rows, temperature):
    probs = torch.softmax(4 * torch.tensor(rows, dtype=torch.float64), dim=1)
    scaled = Calibration(temperature).apply(probs)
    best = probs.max(dim=1).values
    chosen = scaled.argmax(dim=1)
    assert torch.allclose(probs.gather(1, chosen[:, None])[:, 0], best)
    assert torch.allclose(scaled.sum(dim=1), torch.ones(len(rows), dtype=torch.float64))
