"""Settings of the suite: fewer steps where the number of them is not what is tested."""

import os
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from unittest.mock import patch


def examples(deep: int) -> int:
    """How many examples a property is tried on: a third of `deep`, or all with `DEEP_TESTS=1`."""
    return deep if os.environ.get("DEEP_TESTS") else -(-deep // 3)


def quick_checks():
    """Condensed graphs are tried by networks of 20 steps, not 200: most of what condensing a tiny
    graph takes.
    """
    from dance_flwr.baselines.condensation import client

    client._STEPS = 20


def quick_estimates():
    """The committed rows, from which a grid is estimated, are read once: that takes a second."""
    from dance_flwr.study.engine import estimate

    read, committed = estimate._of_rows, estimate.COMMITTED
    once = cache(lambda: read(committed))
    estimate._of_rows = lambda file: once() if file == committed else read(file)


class InThread:
    """An executor that runs its tasks in the calling thread."""

    def __init__(self, **_):
        pass

    def __enter__(self):
        return SimpleNamespace(map=map)

    def __exit__(self, *_):
        pass


def quick_shares():
    """Masked sums share their secrets without a thread per block, and multiply in GF(2^128) without
    constant time: more than a quarter of what a sum takes.
    """
    from Crypto.Protocol.SecretSharing import _Element
    from flwr.common.secure_aggregation.crypto import shamir

    def product(one, other):
        large, small = sorted((int(one), int(other)), reverse=True)
        total = 0
        while small:
            total ^= -(small & 1) & large
            large = large << 1 ^ -(large >> 127) & _Element.irr_poly
            small >>= 1
        return _Element(total)

    invert = _Element.inverse
    inverse = cache(lambda value: invert(_Element(value)))  # of differences of a few numbers
    _Element.__mul__, _Element.inverse = product, lambda one: inverse(int(one))
    shamir.ThreadPoolExecutor = InThread


@contextmanager
def quick_masks():
    """GNNExplainer optimises the masks of an analysis in 3 steps, not 100."""
    from dance_flwr.study.protocols.faithfulness import protocol

    with patch.object(protocol, "masked_chunks", partial(protocol.masked_chunks, steps=3)):
        yield
