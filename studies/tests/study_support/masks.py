"""Masks of GNNExplainer in few steps."""

from contextlib import contextmanager
from functools import partial
from unittest.mock import patch


@contextmanager
def quick_masks():
    """GNNExplainer optimises the masks of an analysis in 3 steps, not 100."""
    from dance_flwr_studies.protocols.faithfulness import protocol

    with patch.object(protocol, "masked_chunks", partial(protocol.masked_chunks, steps=3)):
        yield
