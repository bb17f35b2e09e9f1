import pytest
import torch
from entmax import entmax15 as package_entmax15
from support.card import CARD, counting

from dance_flwr.nn.entmax import SortedEntmax15, entmax15


@pytest.mark.parametrize("width", [1, 2, 17, 60])
def test_without_a_running_sum_it_and_its_gradient_are_those_of_the_package(width):
    """Rows with padding, and one of padding alone."""
    draws = torch.Generator().manual_seed(width)
    scores = 3 * torch.randn(50, width, generator=draws)
    scores[scores < -2] = torch.finfo(scores.dtype).min / 4
    scores[0] = torch.finfo(scores.dtype).min / 4
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    probs, expected = SortedEntmax15.apply(ours), package_entmax15(theirs, dim=1)
    towards = torch.randn(probs.shape, generator=draws)
    (probs * towards).sum().backward()
    (expected * towards).sum().backward()
    torch.testing.assert_close(probs, expected)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)
    with counting() as counts:
        on_card = entmax15(scores.to(CARD))
    torch.testing.assert_close(on_card, expected.detach())
    assert not counts.alerts
    assert torch.equal(entmax15(scores), expected)
