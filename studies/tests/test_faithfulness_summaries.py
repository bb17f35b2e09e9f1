"""Summaries of evidence change no faithfulness."""

from dance_flwr_studies.protocols.faithfulness.protocol import faithfulness
from study_support.masks import quick_masks

LONG = {"chunk_tokens": 64, "rounds": 2}  # a chunk has several sentences


def test_faithfulness_is_the_same_with_and_without(run):
    found = []
    for keys in ({}, {"llm_summaries": "core", "llm_backend": "stub"}):
        finished = run(**LONG, **keys)
        with quick_masks():
            found.append(
                faithfulness(finished.folder, finished.config, finished.partition, nodes=2, draws=1)
            )
    assert found[0] == found[1]
