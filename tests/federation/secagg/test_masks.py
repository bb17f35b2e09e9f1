"""Masks: known vectors, every bit of the secret counts, and Flower's generator is replaced."""

import importlib

import numpy as np
import pytest

from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.federation.privacy.noise import key_stream
from dance_flwr.federation.secagg import masks

# RFC 8439, appendix A.1: blocks 0 and 1 under a key and nonce of zeros.
BLOCK_0 = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)
BLOCK_1 = (
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
)


def test_the_stream_is_that_of_rfc_8439():
    assert key_stream(bytes(32), bytes(12), 128).hex() == BLOCK_0 + BLOCK_1
    nonce = bytes.fromhex("000000000000000000000002")
    assert key_stream(bytes(32), nonce, 8).hex() == "c2c64d378cd53637"  # A.1, test vector 5


@pytest.mark.parametrize("modulus", [1, 3, 2**33, 2**32 - 1])
def test_a_modulus_without_uniform_words_is_refused(modulus):
    with pytest.raises(ValueError, match="power of two"):
        masks.masks(b"secret", modulus, [(1,)])


def test_every_bit_of_the_secret_counts_where_flowers_folds_them():
    one = bytes(range(32))
    other = one[4:8] + one[:4] + one[8:]  # the same 32-bit exclusive or
    assert np.array_equal(
        *(flower.pseudo_rand_gen(secret, 2**32, [(8,)])[0] for secret in (one, other))
    )
    assert not np.array_equal(
        masks.masks(one, 2**32, [(8,)])[0], masks.masks(other, 2**32, [(8,)])[0]
    )


def test_both_of_flowers_modules_use_it():
    masks.install()
    masks.install()
    for path in flower.MASK_USERS:
        assert importlib.import_module(path).pseudo_rand_gen is masks.masks


def test_another_generator_in_flower_is_not_replaced_unread(monkeypatch):
    def pseudo_rand_gen(seed, num_range, dimensions_list):
        """What a later Flower may hold."""

    monkeypatch.setitem(vars(flower), "pseudo_rand_gen", pseudo_rand_gen)
    with pytest.raises(UserError, match="read the new one"):
        masks.install()


def test_a_generator_that_moved_is_missed(monkeypatch):
    masks.install()
    monkeypatch.delattr(importlib.import_module(flower.MASK_USERS[1]), "pseudo_rand_gen")
    with pytest.raises(UserError, match="found none"):
        masks.install()
