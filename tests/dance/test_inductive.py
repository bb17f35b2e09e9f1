"""Inductive mode: test nodes and their edges are absent in training and present in evaluation."""

import numpy as np
import pytest
import torch
from support.graphs import WORDS, node_id, sentences, text_graph

from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TEST, TRAIN, VAL
from dance_flwr.evidence.pack import Packs

SPLIT = np.array([TRAIN, TRAIN, VAL, TEST] * 12, np.uint8)
LABELS = np.arange(48) % 3


def write(path, *, other_test_nodes):
    """One graph in two versions that differ in the texts and edges of test nodes only."""
    rng = np.random.default_rng(3)
    texts = [sentences(rng, WORDS[sorted(WORDS)[label]], 2) for label in LABELS]
    pairs = np.argwhere(np.triu(rng.random((48, 48)) < 0.1, 1))
    if other_test_nodes:
        texts = [
            text if SPLIT[i] != TEST else f"Wholly different words about {i}."
            for i, text in enumerate(texts)
        ]
        test = np.flatnonzero(SPLIT == TEST)
        pairs = np.concatenate(
            [pairs, np.stack([test[:-1], test[1:]], 1), np.stack([test, (test + 1) % 48], 1)]
        )
    graph = text_graph("inductive", [node_id(i) for i in range(48)], texts, LABELS, pairs, SPLIT)
    write_folder(graph, path)
    return str(path)


AGREEMENT = {"text_pooling": "agreement", "edge_gates": "agreement"}


def uploads(run, data, mode, method, **keys):
    done = run(data=data, clients=1, split_mode=mode, method=method, rounds=2, **keys)
    arrays = [
        m.content.array_records["arrays"].to_torch_state_dict() for m in done.replies("train")
    ]
    return done, arrays


@pytest.mark.parametrize(
    ("method", "keys"),
    [("dance", {}), ("fedavg-full", {}), ("dance", AGREEMENT), ("fedavg-full", AGREEMENT)],
)
def test_training_does_not_depend_on_test_nodes(run, tmp_path, method, keys):
    same = {}
    for mode in ("inductive", "transductive"):
        states = []
        for other in (False, True):
            folder = tmp_path / f"{mode}-{other}"
            data = write(folder, other_test_nodes=other)
            states.append(uploads(run, data, mode, method, **keys)[1])
        pairs = [(a[name], b[name]) for a, b in zip(*states, strict=True) for name in a]
        same[mode] = all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)
    assert same == {"inductive": True, "transductive": False}


def test_test_nodes_enter_no_core_and_no_evidence_of_a_round(run, tmp_path, cli):
    """36 of 48 nodes are visible: a quarter of them is 9, a quarter of all would be 12."""
    done, _ = uploads(run, write(tmp_path / "graph", other_test_nodes=False), "inductive", "dance")
    split = done.data(0).split.numpy()
    for path in done.store(0).all_packs():
        packs = Packs.load(path)
        assert (split[packs.nodes] != TEST).all()
        if path.stem != "final":
            assert (split[packs.neighbours] != TEST).all()
    assert done.result["per_condensed_node"]["nodes_per_round"] == 9
    assert cli("evidence", "verify", done.folder).code == 0
