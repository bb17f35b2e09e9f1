"""Graphs at the limits of what a client may hold."""

from dataclasses import dataclass, field

import numpy as np
import torch

from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.evidence.pack import Packs
from support.graphs import WORDS, sentences

CLASSES = sorted(WORDS)


@dataclass
class Draft:
    """Two clients of nine nodes in a ring, per class one each in train, val and test."""

    ids: list[str] = field(default_factory=lambda: [f"c{i // 9}-{i % 9}" for i in range(18)])
    labels: list[int] = field(default_factory=lambda: [i % 3 for i in range(18)])
    split: list[int] = field(
        default_factory=lambda: [(TRAIN, VAL, TEST)[i % 9 // 3] for i in range(18)]
    )
    pairs: list[tuple[int, int]] = field(
        default_factory=lambda: [(c * 9 + i, c * 9 + (i + 1) % 9) for c in (0, 1) for i in range(9)]
    )
    count: int = 2

    def texts(self):
        rng = np.random.default_rng(3)
        return [sentences(rng, WORDS[CLASSES[label % 3]], self.count) for label in self.labels]


def missing_class(draft):
    draft.labels = [label % 2 if i < 9 else label for i, label in enumerate(draft.labels)]


def train_nodes(count):
    def edit(draft):
        kept = [i for i in range(9) if draft.split[i] == TRAIN][:count]
        draft.split[:9] = [
            s if s != TRAIN or i in kept else TEST for i, s in enumerate(draft.split[:9])
        ]

    return edit


def unlabelled(draft):
    for i in (0, 4, 8, 12):
        draft.labels[i], draft.split[i] = -1, NO_SPLIT


def all_unlabelled(draft):
    draft.labels[:9], draft.split[:9] = [-1] * 9, [NO_SPLIT] * 9


def without(part):
    return lambda draft: setattr(draft, "split", [TRAIN if s == part else s for s in draft.split])


def all_test(draft):
    draft.split[:9] = [TEST] * 9


def isolated(draft):
    draft.pairs = [pair for pair in draft.pairs if 4 not in pair]


def single_node(draft):
    draft.ids = ["c0-0", *(f"c1-{i}" for i in range(17))]
    draft.pairs = [(i, i + 1) for i in range(1, 17)]


def keep(draft):
    """Keep the draft."""


def account(finished, client=0):
    from dance_flwr.data.prepare import check

    return check(finished.partition)["clients"][client]


def core_size(finished):
    return len(Packs.load(finished.store(0).round_path(1)).nodes)


def neighbours_beyond(finished):
    return [
        int((Packs.load(path).neighbour_hops > 0).sum())
        for c in (0, 1)
        for path in finished.store(c).all_packs()
    ]


# name -> (edit of the draft, keys, proof that the case occurs)
CASES = {
    "a class is missing at one client": (
        missing_class,
        {},
        lambda f: (
            account(f)["nodes_per_class"][CLASSES[2]]
            == 0
            < account(f, 1)["nodes_per_class"][CLASSES[2]]
        ),
    ),
    "one labelled node": (
        train_nodes(1),
        {},
        lambda f: account(f)["nodes_per_split"]["train"] == 1,
    ),
    "no labelled node": (train_nodes(0), {}, lambda f: account(f)["nodes_per_split"]["train"] == 0),
    "no label at all at one client": (
        all_unlabelled,
        {},
        lambda f: account(f)["nodes_per_split"]["none"] == 9,
    ),
    "no node that training may see, at one client": (
        all_test,
        {"split_mode": "inductive"},
        lambda f: account(f)["nodes_per_split"]["test"] == 9,
    ),
    "no node for a core that is drawn at random": (
        all_test,
        {"split_mode": "inductive", "dance_core_rule": "random"},
        lambda f: account(f)["nodes_per_split"]["test"] == 9,
    ),
    "no node for a core that covers": (
        all_test,
        {"split_mode": "inductive", "dance_core_rule": "coverage"},
        lambda f: account(f)["nodes_per_split"]["test"] == 9,
    ),
    "no class to weigh at one client": (
        all_unlabelled,
        {"loss_weights": "balanced"},
        lambda f: account(f)["nodes_per_split"]["none"] == 9,
    ),
    "some unlabelled nodes": (unlabelled, {}, lambda f: int((f.data(0).labels < 0).sum()) == 3),
    "no validation node at one client": (
        lambda d: d.split.__setitem__(slice(0, 9), [TRAIN if s == VAL else s for s in d.split[:9]]),
        {},
        lambda f: (
            account(f)["nodes_per_split"]["val"] == 0 < account(f, 1)["nodes_per_split"]["val"]
        ),
    ),
    "no validation node anywhere": (
        without(VAL),
        {},
        lambda f: (
            (f.result["val_nodes"], f.result["val_accuracy"], f.result["best_round"])
            == (0, None, 2)
        ),
    ),
    "no test node anywhere": (
        without(TEST),
        {},
        lambda f: [c["test_nodes"] for c in f.result["clients"]] == [0, 0],
    ),
    "an isolated node": (
        isolated,
        {},
        lambda f: f.data(0).graph.hops().one(torch.tensor([4])).index.numel() == 0,
    ),
    "no edges": (
        lambda d: d.pairs.clear(),
        {},
        lambda f: account(f)["edges"] == account(f, 1)["edges"] == 0,
    ),
    "a client of a single node": (
        single_node,
        {},
        lambda f: f.result["nodes_per_client"] == [1, 17],
    ),
    "a core of one node": (
        keep,
        {"condensation_ratio": 0.1, "dance_candidates": 10},
        lambda f: core_size(f) == 1,
    ),
    "a core smaller than the candidates": (
        keep,
        {"condensation_ratio": 0.3, "dance_candidates": 10},
        lambda f: core_size(f) == 3,
    ),
    "every node condensed": (
        keep,
        {"condensation_ratio": 1.0, "dance_confidence": 0.0},
        lambda f: core_size(f) == 9,
    ),
    "one chunk per node": (
        keep,
        {"max_chunks": 1},
        lambda f: (np.diff(f.data(0).bank.ptr) == 1).all(),
    ),
    "no budget at hops 1 and 2": (
        keep,
        {"dance_hop1_budget": 0, "dance_hop2_budget": 0},
        lambda f: f.config.method != "dance" or neighbours_beyond(f) == [0] * 6,
    ),
}


def data_without(crafted, *parts):
    """A graph without nodes of these parts of the split, written by the fixture `crafted`."""
    draft = Draft()
    for part in parts:
        without(part)(draft)
    return crafted("edge", draft.ids, draft.texts(), draft.labels, draft.pairs, draft.split)
