"""Counts before any training: by hand, and the same whoever adds them up."""

import json

import numpy as np
import pytest
from support.graphs import text_graph

from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.stats import lines_of, stats_of, summed
from dance_flwr.errors import UserError


@pytest.fixture
def folders(tmp_path):
    """Two graphs: a star of four nodes, and two nodes without an edge."""
    star = text_graph(
        *("star", list("abcd"), ["x", "x" * 63, "x" * 64, "x" * 300], np.array([0, 1, 1, -1])),
        np.array([[0, 1], [0, 2], [0, 3]]),
    )
    pair = text_graph(
        "pair", list("ef"), ["x", "x" * 10**6], np.array([2, 0]), np.zeros((0, 2), int)
    )
    for name, graph in (("star", star), ("pair", pair)):
        write_folder(graph, tmp_path / name)
    return tmp_path / "star", tmp_path / "pair"


def test_counts_by_hand(folders):
    star = stats_of(folders[0])
    assert star["sizes"] == {"folders": 1, "nodes": 4, "edges": 3, "unlabelled": 1}
    assert sorted(star["classes"].values()) == [0, 1, 2]
    assert star["degrees"] == {"1": 3, "2": 1}  # the centre has two or three neighbours
    assert star["characters"] == {"0": 2, "64": 1, "256": 1}
    both = summed(folders)
    assert both["sizes"] == {"folders": 2, "nodes": 6, "edges": 3, "unlabelled": 1}
    assert both["degrees"] == {"0": 2, "1": 3, "2": 1}
    assert both["characters"]["524288"] == 1


def test_files_of_institutions_add_up_to_the_same(folders, cli):
    for folder in folders:
        assert cli("data", "show", folder, "--out", f"{folder}.json").code == 0
    files = [folder.with_suffix(".json") for folder in folders]
    assert summed(files) == summed(folders)
    assert cli("data", "show", *files).out.splitlines() == lines_of(summed(folders))
    assert json.loads(cli("data", "show", *folders, "--json").out) == summed(folders)


def test_a_partition_is_the_sum_of_its_clients(dance):
    every = [dance.partition / f"client-{k}" for k in range(dance.config.clients)]
    assert summed([dance.partition]) == summed(every)
    assert summed([dance.partition])["sizes"]["folders"] == dance.config.clients


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": {"nodes": -1}},
        {"degrees": [1]},
        {"classes": {"a": "x"}},
        {"more": {}},
        {"characters": {"0": 1.5}},
    ],
)
def test_a_file_that_holds_something_else_is_refused_in_one_line(folders, tmp_path, change):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(stats_of(folders[0]) | change))
    with pytest.raises(UserError, match="expected counts that `dance-flwr data show --out` wrote"):
        summed([path])
