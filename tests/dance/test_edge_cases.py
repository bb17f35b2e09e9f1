"""Clients at the edge: hand-made graphs whose odd case is asserted to occur, then two rounds with
finite results.
"""

import numpy as np
import pytest
import torch
from support.edge_cases import Draft
from support.graphs import WORDS

from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.prepare import check
from dance_flwr.evidence.pack import Packs
from dance_flwr.runs.result import load_model

ONLY_DANCE = ("core", "condensed")
INDUCTIVE = {"split_mode": "inductive"}
LAST_CLASS = sorted(WORDS)[2]


def missing_class(draft):
    draft.labels[:9] = [label % 2 for label in draft.labels[:9]]


def one_train_node(draft):
    draft.replace(TRAIN, TEST, 0)
    draft.split[0] = TRAIN


def unlabelled(draft):
    for i in (0, 4, 8, 12):
        draft.labels[i], draft.split[i] = -1, NO_SPLIT


def all_unlabelled(draft):
    draft.labels[:9], draft.split[:9] = [-1] * 9, [NO_SPLIT] * 9


def all_test(draft):
    draft.split[:9] = [TEST] * 9


def single_node(draft):
    draft.ids = ["c0-0", *(f"c1-{i}" for i in range(17))]
    draft.pairs = [(i, i + 1) for i in range(1, 17)]


def isolated(draft):
    draft.pairs = [pair for pair in draft.pairs if 4 not in pair]


def keep(draft):
    """Keep the draft."""


def nodes_of(part, client=0):
    """A function of a run: the nodes of a part of the split, or of a class, at a client."""

    def count(finished):
        account = check(finished.partition)["clients"][client]
        return (account["nodes_per_split"] | account["nodes_per_class"])[part]

    return count


def edges(finished):
    return [client["edges"] for client in check(finished.partition)["clients"]]


def core_size(finished):
    return len(Packs.load(finished.store(0).round_path(1)).nodes)


def neighbours_beyond(finished):
    packs = [Packs.load(path) for c in (0, 1) for path in finished.store(c).all_packs()]
    return [int((pack.neighbour_hops > 0).sum()) for pack in packs]


def measured(finished):
    result = finished.result
    return result["val_nodes"], result["val_accuracy"], result["best_round"]


# name -> (edit of the draft, keys, what proves that the case occurs, its value)
CASES = {
    "a class is missing at one client": (missing_class, {}, nodes_of(LAST_CLASS), 0),
    "one labelled node": (one_train_node, {}, nodes_of("train"), 1),
    "no labelled node": (lambda draft: draft.replace(TRAIN, TEST, 0), {}, nodes_of("train"), 0),
    "no label at all at one client": (all_unlabelled, {}, nodes_of("none"), 9),
    "no node that training may see, at one client": (all_test, INDUCTIVE, nodes_of("test"), 9),
    **{
        f"no node for a core by the rule {rule}": (
            *(all_test, {**INDUCTIVE, "dance_core_rule": rule}),
            *(nodes_of("test"), 9),
        )
        for rule in ("random", "coverage")
    },
    "no class to weigh at one client": (
        *(all_unlabelled, {"loss_weights": "balanced"}),
        *(nodes_of("none"), 9),
    ),
    "some unlabelled nodes": (unlabelled, {}, lambda f: int((f.data(0).labels < 0).sum()), 3),
    "no validation node at one client": (
        *(lambda draft: draft.replace(VAL, TRAIN, 0), {}),
        *(lambda f: [nodes_of("val", client)(f) for client in (0, 1)], [0, 3]),
    ),
    "no validation node anywhere": (lambda draft: draft.without(VAL), {}, measured, (0, None, 2)),
    "no test node anywhere": (
        *(lambda draft: draft.without(TEST), {}),
        *(lambda f: [client["test_nodes"] for client in f.result["clients"]], [0, 0]),
    ),
    "an isolated node": (
        *(isolated, {}),
        *(lambda f: f.data(0).graph.hops().one(torch.tensor([4])).index.numel(), 0),
    ),
    "no edges": (lambda draft: draft.pairs.clear(), {}, edges, [0, 0]),
    "a client of a single node": (
        *(single_node, {}),
        *(lambda f: f.result["nodes_per_client"], [1, 17]),
    ),
    **{
        f"a core of {size}": (
            *(keep, {"condensation_ratio": ratio, "dance_candidates": 10, "dance_confidence": 0.0}),
            *(core_size, size),
        )
        for size, ratio in ((1, 0.1), (3, 0.3), (9, 1.0))  # smaller than the candidates, and whole
    },
    "one chunk per node": (
        *(keep, {"max_chunks": 1}),
        *(lambda f: bool((np.diff(f.data(0).bank.ptr) == 1).all()), True),
    ),
    "no evidence of hops 1 and 2 for the core": (
        *(keep, {"dance_hop1_budget": 0, "dance_hop2_budget": 0}),
        *(neighbours_beyond, [0] * 6),
    ),
}


@pytest.mark.parametrize("method", ["dance", "fedavg-full"])
@pytest.mark.parametrize("case", CASES)
def test_two_rounds_stay_finite_with(run, crafted, method, case):
    if method != "dance" and any(word in case for word in ONLY_DANCE):
        pytest.skip("has no core")
    edit, keys, occurring, value = CASES[case]
    draft = Draft()
    edit(draft)
    data = crafted("edge", *draft.parts())
    settings = {"data": data, "partition": "random", "clients": 2, "rounds": 2, "method": method}
    settings |= {"local_epochs": 1, "dance_core_refresh_every": 1}
    finished = run(**settings | keys)
    assert occurring(finished) == value, "the graph does not show the case"
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
    data = crafted("counted", *draft.parts())
    finished = run(data=data, partition="random", clients=2, rounds=1)
    assert sum(client["test_nodes"] for client in finished.result["clients"]) == draft.split.count(
        TEST
    )
