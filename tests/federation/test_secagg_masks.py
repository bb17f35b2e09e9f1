"""The masks in place of Flower's: every bit of the secret counts, and Flower's generator is really
replaced.
"""

import importlib

import numpy as np
import pytest
from scipy import stats

from dance_flwr.errors import UserError
from dance_flwr.federation import flower, secagg_masks
from dance_flwr.privacy import masks


def test_every_bit_of_the_secret_counts_where_flowers_folds_them():
    one = bytes(range(32))
    other = one[4:8] + one[:4] + one[8:]  # the same 32-bit exclusive or
    assert np.array_equal(
        *(flower.pseudo_rand_gen(secret, 2**32, [(8,)])[0] for secret in (one, other))
    )
    assert not np.array_equal(
        masks.masks(one, 2**32, [(8,)])[0], masks.masks(other, 2**32, [(8,)])[0]
    )


def test_shapes_and_range_as_flowers_generator():
    shapes = [(1,), (), (3, 2), (0,)]
    ours, theirs = (
        masks.masks(b"k" * 32, 2**20, shapes),
        flower.pseudo_rand_gen(b"k" * 32, 2**20, shapes),
    )
    assert [(a.shape, a.dtype) for a in ours] == [
        (np.shape(b), np.asarray(b).dtype) for b in theirs
    ]
    (many,) = masks.masks(b"k" * 32, 2**20, [(200_000,)])
    assert many.min() >= 0 and many.max() < 2**20
    assert stats.kstest(many, stats.randint(0, 2**20).cdf).pvalue > 1e-4


def test_both_of_flowers_modules_use_it():
    secagg_masks.install()
    secagg_masks.install()
    for path in flower.MASK_USERS:
        assert importlib.import_module(path).pseudo_rand_gen is masks.masks


def test_another_generator_in_flower_is_not_replaced_unread(monkeypatch):
    def pseudo_rand_gen(seed, num_range, dimensions_list):
        """What a later Flower may hold."""

    monkeypatch.setitem(vars(flower), "pseudo_rand_gen", pseudo_rand_gen)
    with pytest.raises(UserError, match="read the new one"):
        secagg_masks.install()


def test_a_generator_that_moved_is_missed(monkeypatch):
    secagg_masks.install()
    monkeypatch.delattr(importlib.import_module(flower.MASK_USERS[1]), "pseudo_rand_gen")
    with pytest.raises(UserError, match="found none"):
        secagg_masks.install()
