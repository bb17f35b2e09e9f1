"""Global generators: seeded in a block, as `torch.manual_seed` does, and left alone after it."""

import torch

from dance_flwr.seeding import derive, generator, seeded


def test_numbers_are_those_of_manual_seed_and_the_state_outside_is_kept() -> None:
    torch.manual_seed(5)
    expected_after = torch.rand(4)
    torch.manual_seed(derive(3, "train", round_=2, client=1))
    expected_inside = torch.rand(4)

    torch.manual_seed(5)
    with seeded(3, "train", round_=2, client=1):
        inside = torch.rand(4)

    assert torch.equal(inside, expected_inside)
    assert torch.equal(torch.rand(4), expected_after)


def test_each_of_the_four_values_changes_the_numbers() -> None:
    draws = [
        generator(seed, purpose, round_=round_, client=client).initial_seed()
        for seed in (0, 1)
        for purpose in ("train", "model")
        for round_ in (0, 1)
        for client in (-1, 0)
    ]

    assert len(set(draws)) == len(draws)
