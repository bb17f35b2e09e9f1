"""Settings of the suite: fewer steps where the number of them is not what is tested."""

from contextlib import contextmanager
from functools import partial
from unittest.mock import patch


def quick_checks():
    """Condensed graphs are tried by networks of 20 steps, not 200: most of what condensing a tiny
    graph takes.
    """
    from dance_flwr.baselines.condensation import client

    client._STEPS = 20


@contextmanager
def quick_masks():
    """GNNExplainer optimises the masks of an analysis in 3 steps, not 100."""
    from dance_flwr.study.protocols.faithfulness import protocol

    with patch.object(protocol, "masked_chunks", partial(protocol.masked_chunks, steps=3)):
        yield
