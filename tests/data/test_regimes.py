"""Client folders with few labels, mixed texts and random edges, and runs on them."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data import prepare as preparation
from dance_flwr.data.client_folder import check
from dance_flwr.data.graphs.folder import read_folder
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.prepare import partition_spec, prepare
from dance_flwr.runs.evidence import verify_evidence

REGIME = {"foreign_text_ratio": 0.5, "random_edge_ratio": 0.5, "labels_per_class": 4}


@pytest.fixture(scope="module")
def sites(run_config):
    """Clients of the tiny graph as it is, and in all regimes at once."""
    return [
        [ClientData(prepare(config).folder / f"client-{k}", torch.device("cpu")) for k in range(3)]
        for config in (run_config(), run_config(**REGIME))
    ]


def test_the_name_of_a_partition_says_its_regime_and_stays_without_one(run_config, monkeypatch):
    """The key of the first name was computed by the version before these settings."""
    monkeypatch.setattr(preparation, "source_identity", lambda data, root: "source")
    bank = type("Bank", (), {"fingerprint": "0" * 64})()

    def name(**keys):
        keys = {"data": "toy", "clients": 5, **keys}
        return preparation.partition_folder(run_config(**keys), bank).name

    assert name() == "toy-louvain-5-seed0-56610724057f"
    assert name(**REGIME).startswith("toy-louvain-5-seed0-labels4-foreign0.5-edges0.5-")
    names = {name(), *(name(**{key: value}) for key, value in REGIME.items()), name(**REGIME)}
    assert len(names) == 5
    assert len({each.rpartition("-")[2] for each in names}) == 5


def test_a_prepared_regime_is_found_again_and_checked(run_config):
    said: list[str] = []
    first, again = (prepare(run_config(**REGIME), said.append) for _ in range(2))
    assert first.folder == again.folder and said[-1].endswith("(found)")
    assert check(first.folder)["spec"] == partition_spec(run_config(**REGIME)).settings()
    assert first.manifest["sha256"] != prepare(run_config()).manifest["sha256"]


def test_random_edges_are_in_the_tables_and_in_the_arrays(sites):
    for number, (plain, noisy) in enumerate(zip(*sites, strict=True)):
        rows = json.loads((noisy.folder.parent / "manifest.json").read_text())["clients"]
        before, after = (data.graph.rows.index.numel() // 2 for data in (plain, noisy))
        assert rows[number]["edges"] == before
        assert after - before == rows[number]["random_edges"] == round(0.5 * before)
        assert pq.read_table(noisy.folder / "edges.parquet").num_rows == after
        table = read_folder(noisy.folder)
        assert np.array_equal(table.indptr, np.load(noisy.folder / "arrays" / "indptr.npy"))
        assert np.array_equal(table.indices, np.load(noisy.folder / "arrays" / "indices.npy"))
        assert table.texts == noisy.texts()


def test_labels_are_taken_from_training_nodes_alone(sites):
    counts = np.zeros(3, int)
    for plain, few in zip(*sites, strict=True):
        known = few.train_labels >= 0
        assert (plain.train_labels[known] == few.train_labels[known]).all()
        for part in (VAL, TEST):
            assert torch.equal(plain.split == part, few.split == part)
        assert set(few.split[plain.split == TRAIN].tolist()) <= {TRAIN, NO_SPLIT}
        assert few.label_table.sum() == known.sum()
        counts += np.bincount(few.train_labels[known], minlength=3)
    assert counts.tolist() == [4, 4, 4]


def test_evidence_of_mixed_texts_can_be_verified(run):
    finished = run(**REGIME)
    said: list[str] = []
    verify_evidence(finished.folder, None, said.append)
    assert any("marked passages read back" in line for line in said)


def test_show_names_the_regime(run_config, cli):
    shown = cli("data", "show", prepare(run_config(**REGIME)).folder)
    line = "regime      labels-per-class 4, foreign-text-ratio 0.5, random-edge-ratio 0.5"
    assert line in shown.out.splitlines()
    assert "regime" not in cli("data", "show", prepare(run_config()).folder).out
