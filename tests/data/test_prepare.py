"""From a data set to client folders: what is written, and for whom."""

from dataclasses import replace

import numpy as np
import pytest
from filelock import FileLock

from dance_flwr.data.card import read_ids, read_texts
from dance_flwr.data.client_folder import check
from dance_flwr.data.graphs.folder import read_folder, write_folder
from dance_flwr.data.prepare import WARNING, partition_folder, prepare, text_bank
from dance_flwr.errors import DataError


@pytest.fixture(scope="module")
def with_sites(tiny, tmp_path_factory):
    """The tiny graph with sites of 40, 20 and 12 nodes; texts name their site."""
    graph = read_folder(tiny)
    site = np.repeat(["north", "east", "south"], [40, 20, 12])
    texts = [f"{text} Held by {name}." for text, name in zip(graph.texts, site, strict=True)]
    folder = tmp_path_factory.mktemp("sites") / "with-sites"
    write_folder(replace(graph, site=site, texts=texts), folder)
    return folder


def test_sites_that_take_no_part_are_counted_and_leave_nothing_behind(with_sites, run_config):
    config = run_config(data=str(with_sites), partition="by-column", clients=2)
    said: list[str] = []
    prepared = prepare(config, said.append)
    line = next(line for line in said if "take no part" in line)
    edges = prepared.manifest["report"]["outside"]["edges"]
    total = prepared.manifest["num_edges"]
    assert line == (
        "partition   12 of 72 nodes (16.7%) take no part, as no client holds them; with them "
        f"{edges} of {total} edges"
    )
    assert check(prepared.folder)["num_nodes"] == 72
    graph = read_folder(with_sites)
    for client, (name, size) in enumerate([("east", 20), ("north", 40)]):
        folder = prepared.folder / f"client-{client}"
        assert read_ids(folder) == graph.ids[graph.site == name].tolist() and size == len(
            read_texts(folder)
        )
    with pytest.raises(DataError, match="found 12 missing"):
        text_bank(config).gather(graph.texts)


def test_a_partition_comes_with_its_warnings_or_not_at_all(tiny, run_config, tmp_path, monkeypatch):
    graph, data = read_folder(tiny), tmp_path / "graph"
    bare = replace(graph, indptr=0 * graph.indptr, indices=graph.indices[:0])
    write_folder(bare, data)  # without an edge: one warning
    config = run_config(data=str(data), data_root=str(tmp_path), clients=2)
    said: list[str] = []
    folder = partition_folder(config)
    with monkeypatch.context() as patch:
        patch.setattr("dance_flwr.data.client_folder.write_text", _no_room)
        with pytest.raises(OSError, match="no room"):
            prepare(config)
    assert not folder.exists()
    assert prepare(config, said.append).folder == folder
    warned = [line for line in said if line.startswith(WARNING)]
    again: list[str] = []
    prepare(config, again.append)
    assert warned and [line for line in again if line.startswith(WARNING)] == warned


def _no_room(path, text):
    raise OSError("no room")


def test_a_run_that_waits_for_a_partition_says_so(tiny, run_config, tmp_path):
    config = run_config(data_root=str(tmp_path), clients=2)
    folder = partition_folder(config)
    folder.parent.mkdir()
    other = FileLock(folder.parent / f".{folder.name}.lock")
    said: list[str] = []

    def log(line):
        said.append(line)
        if "waits for" in line:  # until here the other run holds it
            other.release()

    other.acquire()
    assert prepare(config, log).folder == folder
    (line,) = [line for line in said if "waits for" in line]
    assert line == f"partition   waits for {folder}, which another run is making"


def test_what_is_found_needs_neither_the_graph_nor_a_lock(tiny, run_config, tmp_path, monkeypatch):
    config = run_config(data_root=str(tmp_path), clients=2)
    folder = prepare(config).folder
    with monkeypatch.context() as patch, FileLock(folder.parent / f".{folder.name}.lock"):
        patch.setattr("dance_flwr.data.prepare.load_graph", pytest.fail)
        assert prepare(config).folder == folder
