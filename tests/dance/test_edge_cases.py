"""Clients at the edge: hand-made graphs whose odd case is asserted to occur, then two rounds with
finite results.
"""

import numpy as np
import pytest
import torch
from support.edge_cases import (
    CASES,
    Draft,
    unlabelled,
)

from dance_flwr.data.graphs.graph import TEST
from dance_flwr.evidence.pack import Packs
from dance_flwr.runs.result import load_model

ONLY_DANCE = ("core", "condensed")


@pytest.mark.parametrize("method", ["dance", "fedavg-full"])
@pytest.mark.parametrize("case", CASES)
def test_two_rounds_stay_finite_with(run, crafted, method, case):
    if method != "dance" and any(word in case for word in ONLY_DANCE):
        pytest.skip("has no core")
    edit, keys, occurs = CASES[case]
    draft = Draft()
    edit(draft)
    data = crafted("edge", draft.ids, draft.texts(), draft.labels, draft.pairs, draft.split)
    settings = {"data": data, "partition": "random", "clients": 2, "rounds": 2, "method": method}
    settings |= {"local_epochs": 1, "dance_core_refresh_every": 1}
    finished = run(**settings | keys)
    assert occurs(finished), "the graph does not show the case"
    assert np.isfinite([row["loss"] for row in finished.result["history"]]).all()
    assert all(torch.isfinite(tensor).all() for tensor in load_model(finished.folder).values())
    for reply in finished.replies("train"):
        arrays = reply.content.array_records["arrays"].to_torch_state_dict()
        assert all(torch.isfinite(tensor).all() for tensor in arrays.values())
    score, nodes = finished.result["test_accuracy"], finished.result["test_nodes"]
    assert 0 <= score <= 1 if nodes else score is None
    if method == "dance":
        for client in (0, 1):
            assert all(
                np.isfinite(Packs.load(p).chunk_weights).all()
                for p in finished.store(client).all_packs()
            )


def test_unlabelled_and_unsplit_nodes_are_never_counted(run, crafted):
    draft = Draft()
    unlabelled(draft)
    data = crafted("counted", draft.ids, draft.texts(), draft.labels, draft.pairs, draft.split)
    finished = run(data=data, partition="random", clients=2, rounds=1)
    assert sum(client["test_nodes"] for client in finished.result["clients"]) == draft.split.count(
        TEST
    )


@pytest.mark.parametrize(
    ("backbone", "keys"),
    [
        ("gcn", {"dance_hop1_budget": 0}),
        ("sage", {"dance_hop2_budget": 0}),
        ("gcn", {"dance_align_weight": 0.0}),
        ("sage", {"dance_align_weight": 0.0}),
    ],
)
def test_a_term_or_hop_switched_off_runs(run, keys, backbone):
    finished = run(rounds=2, local_epochs=1, clients=2, backbone=backbone, **keys)
    assert np.isfinite([row["loss"] for row in finished.result["history"]]).all()
