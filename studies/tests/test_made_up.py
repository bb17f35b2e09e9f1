"""The made-up federation: folders that open as those of real data, the same for a seed."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from support.project import PROJECT

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.card import chunk_digests, read_texts
from dance_flwr.data.client_folder import check

sys.path.insert(0, str(PROJECT / "studies" / "benchmarks"))
from made_up import SENTENCE, make_clients, run_clients


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("made-up") / "clients"
    make_clients(path, 2000, 3, seed=1, dim=16)
    return path


def test_the_clients_are_those_of_a_checked_partition(folder):
    content = check(folder)
    assert content["num_nodes"] == sum(client["nodes"] for client in content["clients"]) == 2000
    assert 15_000 < content["num_edges"] <= 20_000
    assert 0.7 < content["ratio_of_edges_kept"] < 0.95


def test_a_site_opens_and_its_chunks_are_its_texts(folder):
    data = ClientData(folder / "client-1", torch.device("cpu"))
    texts, part = read_texts(folder / "client-1"), data.bank
    assert np.array_equal(chunk_digests(texts, part), data.chunk_sha256)
    assert set(np.diff(part.ptr)) == {1, 2, 3}
    start, end = part.spans[part.ptr[7]]
    assert texts[7][start:end].startswith(SENTENCE[:6]) and texts[7][end - 1] == "."
    assert np.allclose(np.linalg.norm(part.embeddings.astype(np.float32), axis=1), 1, atol=1e-2)
    assert data.training_graph.operator("gcn").shape == (data.num_nodes, data.num_nodes)


def test_a_seed_decides_every_file(folder, tmp_path):
    make_clients(tmp_path / "again", 2000, 3, seed=1, dim=16)
    make_clients(tmp_path / "other", 2000, 3, seed=2, dim=16)
    arrays = ["arrays/indices.npy", "arrays/labels.npy", "text/chunk_embeddings.npy"]
    for name in ["manifest.json", *(f"client-2/{array}" for array in arrays)]:
        own = (folder / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == own
        assert (tmp_path / "other" / name).read_bytes() != own


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["FOLDER"], "FOLDER: expected a folder that is new or empty, found manifest.json in it; "),
        (["FOLDER/manifest.json"], "FOLDER/manifest.json: expected a folder, found a file; "),
        (["FOLDER", "--run", "round=3"], "unknown key 'round': did you mean 'rounds'?"),
        (["FOLDER/none", "--run"], "FOLDER/none/manifest.json"),
    ],
)
def test_a_mistake_is_one_line(folder, words, answer):
    program = PROJECT / "studies" / "benchmarks" / "made_up.py"
    command = [sys.executable, program, *(word.replace("FOLDER", str(folder)) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and not done.stdout, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and answer.replace("FOLDER", str(folder)) in line


def test_a_federation_runs_on_it(folder, tmp_path):
    result = run_clients(folder, tmp_path / "run", {"method": "fedavg-full", "rounds": 3})
    assert len(result["history"]) == 3
    assert result["history"][-1]["val_accuracy"] > 0.3


def test_the_rules_of_labelling_are_compared(tiny, capsys):
    """Two labels at each of five institutions, one round."""
    from labelling import RULES, measure, tables

    rows = [row for seed in (5, 6) for row in measure(str(tiny), seed, 10, 1, list(RULES))]
    assert [row.labels["rule"] for row in rows] == 2 * [*RULES]
    results = [row.result for row in rows]
    assert all(0 <= r["test_accuracy"] <= 1 and 1 <= r["classes"] <= 3 for r in results)
    lines = tables(rows).splitlines()
    assert len(lines) == 2 + len(RULES) and "of 2 seeds" in lines[3]
