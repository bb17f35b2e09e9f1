"""What a run read of a client's texts: each refresh once, each chunk once, damage left out."""

import logging

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr.data.text.usage import note_evidence, usage_of
from dance_flwr.disk import write_npz
from dance_flwr.metrics import Tokens

TOKENS = np.array([5, 7, 11, 13, 17], np.int32)


@given(st.lists(st.lists(st.integers(0, 4), max_size=9), max_size=5))
def test_counts_are_those_of_a_loop_over_chunks(tmp_path_factory, rounds):
    folder = tmp_path_factory.mktemp("run")
    for number, chunks in enumerate(rounds, 1):
        note_evidence(folder, number, np.array(chunks, np.int64))
    every = [chunk for chunks in rounds for chunk in chunks]
    assert usage_of([folder], TOKENS) == Tokens(
        evidence_chunks=len(every),
        evidence_tokens=sum(int(TOKENS[chunk]) for chunk in every),
        distinct_chunks=len(set(every)),
        distinct_tokens=sum(int(TOKENS[chunk]) for chunk in set(every)),
    )


def test_a_repeated_round_counts_once(tmp_path):
    for chunks in ([0, 1, 1], [2, 2]):
        note_evidence(tmp_path, 3, np.array(chunks))
    assert usage_of([tmp_path], TOKENS) == Tokens(2, 22, 1, 11)


def test_packs_that_are_kept_are_notes_of_their_refresh_but_not_the_final_ones(tmp_path):
    for name in ("round-00001", "round-00002", "final"):
        write_npz(tmp_path / "evidence" / f"{name}.npz", {"chunks": np.array([0, 2])})
    assert usage_of([tmp_path], TOKENS) == Tokens(4, 32, 2, 16)


def test_a_damaged_note_costs_no_run_and_is_named(tmp_path, caplog, monkeypatch):
    note_evidence(tmp_path, 1, np.array([0]))
    note_evidence(tmp_path, 2, np.array([1, 5]))  # of another text bank
    note_evidence(tmp_path, 3, np.array([2]))
    (tmp_path / "read" / "round-00003.npz").write_bytes(b"PK")
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)  # Flower switches it off
    caplog.set_level(logging.WARNING, logger="flwr")  # other tests raise it
    assert usage_of([tmp_path], TOKENS) == Tokens(1, 5, 1, 5)
    warned = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0].rpartition("/")[2] for line in warned] == [
        "round-00002.npz",
        "round-00003.npz",
    ]
