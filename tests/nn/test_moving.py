from dataclasses import dataclass

import pytest
import torch
from support.card import CARD, counting, on_card
from torch import Tensor

from dance_flwr.nn.moving import HOST, moved
from dance_flwr.nn.propagation import csr
from dance_flwr.nn.sums import sums_at, sums_of_rows


@dataclass(frozen=True)
class Pair:
    mask: Tensor
    rest: tuple[Tensor, int, None]


def test_a_structure_of_all_types_moves_there_and_back_in_one_copy_each():
    values = {
        "a": Pair(torch.tensor([True, False, True]), (torch.arange(3).half(), 7, None)),
        "b": [torch.tensor(2.5).double(), torch.zeros(0, 4), torch.arange(6).view(2, 3).T],
        "c": csr(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), torch.ones(3), (2, 3)),
    }
    with counting() as counts:
        values = moved(values, HOST)
        counts.waits.clear()
        there = moved(values, CARD)
        back = moved(there, HOST)
    assert sum(counts.waits.values()) == 2 and not counts.mixed
    assert on_card(there["a"].mask) and not on_card(back["a"].mask)
    assert back["a"].rest[1:] == (7, None)
    for one, other in (
        (values["a"].mask, back["a"].mask),
        (values["a"].rest[0], back["a"].rest[0]),
        *zip(values["b"], back["b"], strict=True),
        (values["c"].to_dense(), back["c"].to_dense()),
    ):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("width", [(), (3,)])
def test_sums_on_the_card_are_those_of_the_host_in_a_fixed_order(width):
    draws = torch.Generator().manual_seed(0)
    values, index = torch.randn(40, *width, generator=draws), torch.randint(9, (40,))
    ptr = torch.tensor([0, 5, 5, 21, 40])
    expected = sums_at(values, index, 11), sums_of_rows(values, ptr)
    with counting() as counts:
        place = moved((values.to(CARD), index.to(CARD), ptr.to(CARD)), CARD)
        counts.waits.clear()
        found = sums_at(*place[:2], 11), sums_of_rows(place[0], place[2])
    torch.testing.assert_close(found, expected)
    assert not counts.unordered and not counts.waits
