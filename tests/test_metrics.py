"""Metrics against scikit-learn, and the learning rate by hand."""

from math import cos, pi

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from dance_flwr.config.tree import RunConfig
from dance_flwr.metrics import accuracy, balanced_accuracy, count, macro_f1
from dance_flwr.nn.training import learning_rate


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 40),
    classes=st.integers(1, 6),
    masked=st.sampled_from([0.2, 0.8, 1]),
)
def test_counts_give_the_metrics_of_scikit_learn(seed, n, classes, masked):
    rng = np.random.default_rng(seed)
    labels, mask = rng.integers(-1, classes, n), rng.random(n) < masked
    views = {
        name: torch.tensor(rng.dirichlet(np.ones(classes), n)) for name in ("plain", "deployed")
    }
    known = mask & (labels >= 0)
    asked = {name: probs[torch.tensor(known)] for name, probs in views.items()}
    counts = count(asked, torch.tensor(labels[known]))
    assert counts.total == known.sum()
    assert all(
        len(part) == classes for part in (counts.true_positives, counts.predicted, counts.actual)
    )
    if not known.any():
        assert set(counts.correct.values()) == {0}
        assert accuracy(0, counts.total) is None
        assert macro_f1(counts.true_positives, counts.predicted, counts.actual) is None
        return
    for name, probs in views.items():
        guess = probs.argmax(1).numpy()[known]
        assert accuracy(counts.correct[name], counts.total) == pytest.approx(
            accuracy_score(labels[known], guess)
        )
    guess = views["deployed"].argmax(1).numpy()[known]
    found = macro_f1(counts.true_positives, counts.predicted, counts.actual)
    assert found == pytest.approx(f1_score(labels[known], guess, average="macro"))


def test_balanced_accuracy_by_hand():
    """Recalls 1/1 and 2/4; class 1 does not occur."""
    assert balanced_accuracy([1, 0, 2], [1, 0, 4]) == pytest.approx((1 + 0.5) / 2)
    assert balanced_accuracy([0], [0]) is None


@pytest.mark.parametrize(
    ("round_", "expected"),
    [(1, 0.1), (2, 0.1 * (1 + cos(pi / 4)) / 2), (3, 0.05), (4, 0.1 * (1 + cos(3 * pi / 4)) / 2)],
)
def test_the_cosine_rate_starts_whole_and_is_half_in_the_middle(round_, expected):
    """T = 4: factors 1, 0.854, 0.5, 0.146; the last round still learns."""
    config = RunConfig(rounds=4, learning_rate=0.1, lr_schedule="cosine")
    assert learning_rate(config, round_) == pytest.approx(expected, rel=1e-6)
    assert (
        learning_rate(RunConfig(rounds=4, learning_rate=0.1, lr_schedule="constant"), round_) == 0.1
    )
