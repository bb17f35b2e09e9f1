"""Settings of the suite: fewer steps where the number of them is not what is tested."""

import os
from contextlib import contextmanager, nullcontext
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


def quick_shares():
    """Secrets are shared without threads and constant time, a quarter of what a sum takes."""
    from Crypto.Protocol.SecretSharing import _Element
    from flwr.common.secure_aggregation.crypto import shamir

    def product(one, other):
        total, (small, large) = 0, sorted((int(one), int(other)))
        while small:
            total ^= -(small & 1) & large
            large, small = large << 1 ^ -(large >> 127) & _Element.irr_poly, small >> 1
        return _Element(total)

    _Element.__mul__ = product
    shamir.ThreadPoolExecutor = lambda **_: nullcontext(SimpleNamespace(map=map))


@contextmanager
def quick_masks():
    """GNNExplainer optimises the masks of an analysis in 3 steps, not 100."""
    from dance_flwr.study.protocols.faithfulness import protocol

    with patch.object(protocol, "masked_chunks", partial(protocol.masked_chunks, steps=3)):
        yield
