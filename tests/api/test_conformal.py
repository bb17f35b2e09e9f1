"""Conformal sets: a quantile by hand, coverage of exchangeable nodes, a naive twin."""

from math import ceil

import pytest
import torch

from dance_flwr.api.prediction_table import conformal_threshold, prediction_sets
from dance_flwr.errors import UserError


def drawn(nodes, draws, classes=4):
    """Probabilities of a model that is far too sure, and labels, all independent."""
    probs = torch.softmax(2 * torch.randn(nodes, classes, generator=draws), dim=1)
    labels = torch.multinomial(probs, 1, generator=draws).flatten()
    return torch.softmax(3 * probs.log(), dim=1), labels


def test_the_threshold_is_the_rank_by_hand():
    """Scores 0.1, 0.2, .., 0.9: of ten ranks nine tenths are the ninth, of 0.5 the fifth."""
    probs = torch.tensor([[1 - k / 10, k / 10] for k in range(1, 10)])
    labels = torch.zeros(9, dtype=torch.int64)
    assert conformal_threshold(probs, labels, 0.9) == pytest.approx(0.9)
    assert conformal_threshold(probs, labels, 0.5) == pytest.approx(0.5)
    sets = prediction_sets(torch.tensor([[0.7, 0.3], [0.45, 0.55]]), 0.5)
    assert sets.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("nodes", "coverage", "needed"), [(8, 0.9, 9), (0, 0.5, 1), (18, 0.95, 19)]
)
def test_too_few_nodes_are_refused_with_the_number_that_is_needed(nodes, coverage, needed):
    probs, labels = torch.full((nodes, 2), 0.5), torch.zeros(nodes, dtype=torch.int64)
    with pytest.raises(UserError, match=f"at least {needed} validation nodes .* found {nodes};"):
        conformal_threshold(probs, labels, coverage)
    more = torch.full((needed, 2), 0.5), torch.zeros(needed, dtype=torch.int64)
    assert conformal_threshold(*more, coverage) == pytest.approx(0.5)


def test_exchangeable_nodes_are_covered_and_by_the_plain_quantile_they_are_not():
    """m = 20 at 0.9: rank 19 of 21 covers 0.905 in the mean, the naive rank 18 only 0.857."""
    draws, exact, naive = torch.Generator().manual_seed(0), [], []
    for _ in range(1500):
        probs, labels = drawn(21, draws)
        threshold = conformal_threshold(probs[:20], labels[:20], 0.9)
        plain = (1 - probs[:20].double().gather(1, labels[:20, None])[:, 0]).sort().values
        for limit, covered in ((threshold, exact), (float(plain[ceil(0.9 * 20) - 1]), naive)):
            covered.append(bool(prediction_sets(probs[20:], limit)[0, labels[20]]))
    assert sum(exact) / 1500 == pytest.approx(19 / 21, abs=0.02)
    assert sum(exact) / 1500 >= 0.89
    assert sum(naive) / 1500 < 0.88
