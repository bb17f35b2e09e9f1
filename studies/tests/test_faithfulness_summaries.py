"""Summaries of evidence change no faithfulness."""

import shutil

from dance_flwr_studies.protocols.faithfulness.protocol import analyse
from study_support.masks import quick_masks

LONG = {"chunk_tokens": 64, "rounds": 2}  # a chunk has several sentences


def test_faithfulness_is_the_same_with_and_without(run, tmp_path):
    found = []
    for keys in ({}, {"llm_summaries": "core", "llm_backend": "stub"}):
        finished = run(**LONG, **keys)
        shutil.copytree(finished.folder, folder := tmp_path / finished.result["run"])
        with quick_masks():
            found.append(analyse(folder, finished.config, finished.partition, nodes=2, draws=1))
    assert found[0] == found[1]
