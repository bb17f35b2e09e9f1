"""The mask generator: known vectors, and moduli for which masks would not be uniform."""

import numpy as np
import pytest

from dance_flwr.privacy import masks

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
    assert masks.key_stream(bytes(32), bytes(12), 128).hex() == BLOCK_0 + BLOCK_1


def test_a_nonce_of_rfc_8439():
    nonce = bytes.fromhex("000000000000000000000002")
    assert masks.key_stream(bytes(32), nonce, 8).hex() == "c2c64d378cd53637"  # A.1, test vector 5


def test_masks_are_stable():
    (found,) = masks.masks(b"secret", 2**32, [(4,)])
    words = np.frombuffer(masks.stream(b"secret", 16), "<u4")
    assert found.tolist() == words.tolist() and found.dtype == np.int64


@pytest.mark.parametrize("modulus", [1, 3, 2**33, 2**32 - 1])
def test_a_modulus_without_uniform_words_is_refused(modulus):
    with pytest.raises(ValueError, match="power of two"):
        masks.masks(b"secret", modulus, [(1,)])
