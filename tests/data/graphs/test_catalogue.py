"""Fetch published graphs: parse and check files that the tests create, without a network."""

import dataclasses
import gzip
import hashlib
import io
import json
import re
import types
import urllib.request
import zipfile

import huggingface_hub
import pytest
import torch
from support.project import PROJECT
from torch_geometric.data import Data

from dance_flwr.config.plugins import DATASETS
from dance_flwr.data.graphs.catalogue import ARCS, CATALOGUE
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.data.imports.fetch import check_files, fetch, read_lock
from dance_flwr.data.imports.importer import import_graph
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.imports.options import Options
from dance_flwr.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def small(monkeypatch):
    """A function that shrinks the counts of a published graph to those of a small file."""

    def shrink(name, nodes, edges, classes):
        row = dataclasses.replace(CATALOGUE[name], nodes=nodes, edges=edges, classes=classes)
        monkeypatch.setitem(CATALOGUE, name, row)

    return shrink


@pytest.fixture
def web(monkeypatch):
    """Addresses that can be opened: url -> content; a number instead of bytes breaks off after so
    many bytes.
    """
    pages, ranges = {}, []

    class Reply(io.BytesIO):
        status = 200

    def urlopen(request, timeout):
        content, stop = pages[request.full_url]
        wanted = request.headers.get("Range")
        ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        reply = Reply(content[start:stop])
        reply.status = 206 if wanted else 200
        reply.headers = {"Content-Length": str(len(content) - start)}
        return reply

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return pages, ranges


@pytest.fixture
def hub(web, monkeypatch):
    """A hub that serves the files put into it, as from one commit; `asked` are the repositories
    whose commit was asked for.
    """

    class Hub:
        def __init__(self):
            self.asked = []

        def put(self, path, content):
            written = io.BytesIO()
            torch.save(content, written)
            content = content if isinstance(content, bytes) else written.getvalue()
            files = (file for row in CATALOGUE.values() for file in row.files)
            (repo,) = {file.repo for file in files if file.path == path}
            address = huggingface_hub.hf_hub_url(repo, path, repo_type="dataset", revision=COMMIT)
            web[0][address] = content, None

        def info(self, repo, **_):
            self.asked.append(repo)
            return types.SimpleNamespace(sha=COMMIT)

    served = Hub()
    monkeypatch.setattr(
        huggingface_hub.HfApi, "dataset_info", lambda _, *a, **k: served.info(*a, **k)
    )
    return served


def data(**changes):
    values = {
        "edge_index": torch.tensor([[0, 1, 2, 3, 0], [1, 0, 2, 0, 1]]),
        "y": torch.tensor([0, 0, 1, 0]),
        "raw_texts": ["first", "second", "third", "fourth"],
    }
    return Data(**{**values, **changes})


def test_the_catalogue_is_the_papers_table():
    paper = {
        "cora": (2708, 10556, 7, (60, 20, 20)),
        "citeseer": (3186, 8450, 6, (60, 20, 20)),
        "wikics": (11701, 431726, 10, (5, 22.5, 50)),
        "arxiv2023": (46198, 38863, 38, (63, 20, 17)),
        "instagram": (11339, 144010, 2, (10, 10, 80)),
        "reddit": (33434, 269442, 2, (10, 10, 80)),
        "ratings": (24492, 186100, 5, (25, 25, 50)),
        "children": (76875, 1162522, 24, (60, 20, 20)),
        "ogbn-arxiv": (169343, 1166243, 40, (54, 18, 28)),
    }
    found = {
        n: (r.nodes, r.edges, r.classes, tuple(100 * s for s in r.split))
        for n, r in CATALOGUE.items()
    }
    assert {n: v[:3] for n, v in found.items()} == {n: v[:3] for n, v in paper.items()}
    assert all(found[n][3] == pytest.approx(v[3]) for n, v in paper.items())
    assert {n for n, r in CATALOGUE.items() if r.inductive} == {"instagram", "reddit"}
    assert not set(CATALOGUE) & set(DATASETS)
    assert all(row.files and row.licence and row.text for row in CATALOGUE.values())


def test_a_fetched_graph_is_checked_stored_and_locked(tmp_path, hub, small):
    small("instagram", 4, 4, 2)
    hub.put("instagram.pt", data())
    card = fetch("instagram", tmp_path, print)
    graph = load_graph("instagram", tmp_path)
    assert (graph.num_nodes, graph.num_edges, card["inductive"]) == (4, 2, True)
    assert card["split"] == {"official": False, "train": 0.1, "val": 0.1, "test": 0.8}
    folder = tmp_path / "downloads" / "instagram"
    entry = read_lock(folder)["instagram.pt"]
    assert entry["sha256"] == hashlib.sha256((folder / "instagram.pt").read_bytes()).hexdigest()
    assert (entry["revision"], hub.asked) == (COMMIT, ["xxwu/LLMNodeBed"])
    assert card["origin"]["instagram.pt"].startswith(
        "https://huggingface.co/datasets/xxwu/LLMNodeBed/"
    )
    fetch("instagram", tmp_path, print)
    assert len(hub.asked) == 1


def test_a_file_that_is_no_longer_the_recorded_one_is_refused(tmp_path, hub, small):
    small("instagram", 4, 4, 2)
    hub.put("instagram.pt", data())
    fetch("instagram", tmp_path, print)
    graph, folder = tmp_path / "graphs" / "instagram", tmp_path / "downloads" / "instagram"
    graph.rename(tmp_path / "aside")
    (folder / "instagram.pt").unlink()
    hub.put("instagram.pt", data(raw_texts=["other"] * 4))
    with pytest.raises(DataError, match="as first recorded"):
        fetch("instagram", tmp_path, print)
    assert len(hub.asked) == 1  # the commit is that of the first fetch
    assert check_files(folder) == ["instagram.pt"]
    assert not graph.exists()


def test_other_counts_than_the_papers_are_refused_with_both(tmp_path, hub):
    hub.put("cora.pt", data())
    with pytest.raises(DataError) as caught:
        fetch("cora", tmp_path, print)
    assert all(
        part in str(caught.value)
        for part in ("2708 nodes", "10556 edges", "7 classes", "4 nodes, 4 edges")
    )
    assert not list((tmp_path / "graphs").iterdir())
    with pytest.raises(DataError, match="2708 nodes"):
        import_graph([tmp_path / "downloads" / "cora" / "cora.pt"], "cora", tmp_path)


def test_without_a_network_one_line_says_what_to_do(tmp_path, small):
    place = tmp_path / "downloads" / "reddit" / "reddit.pt"
    with pytest.raises(DataError, match=re.escape(f"put it at {place}")) as caught:
        fetch("reddit", tmp_path, print)
    assert f"dance-flwr data import {place} --name reddit" in str(caught.value)
    small("reddit", 4, 4, 2)
    torch.save(data(), place)
    import_graph([place], "reddit", tmp_path)
    assert load_graph("reddit", tmp_path).num_nodes == 4


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_source_that_cannot_be_reached_is_one_line(tmp_path, name, monkeypatch):
    def unreachable(*_, **__):
        raise OSError("no route to host\nat all")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    with pytest.raises(DataError) as caught:
        fetch(name, tmp_path, print)
    message = str(caught.value)
    assert f"--name {name}" in message and "\n" not in message
    assert CATALOGUE[name].files[0].origin in message
    assert not (tmp_path / "graphs").exists()


def test_a_file_put_in_place_by_hand_is_taken(tmp_path, hub, small):
    small("arxiv2023", 4, 2, 2)
    folder = tmp_path / "downloads" / "arxiv2023"
    folder.mkdir(parents=True)
    torch.save(data(raw_texts=None), folder / "graph.pt")
    with pytest.raises(DataError, match=r"paper_info\.csv cannot be downloaded.*by hand only"):
        fetch("arxiv2023", tmp_path, print)
    (folder / "paper_info.csv").write_text(
        "id,title,abstract\n" + "".join(f'{i},t{i},"a, {i}"\n' for i in range(4))
    )
    fetch("arxiv2023", tmp_path, print)
    assert load_graph("arxiv2023", tmp_path).texts[2] == "t2\na, 2"
    assert read_lock(folder)["graph.pt"]["from"] == "put in place by hand"


def test_children_has_its_texts_and_classes_beside(tmp_path, hub, small):
    small("children", 4, 2, 2)
    hub.put("bookchild/processed_data.pt", data(raw_texts=None))
    hub.put("bookchild/raw_texts.pt", ["a", "b", "c", "d"])
    hub.put("bookchild/categories.csv", b"name,description\nAnimals,about\nScience,about\n")
    fetch("children", tmp_path, print)
    graph = load_graph("children", tmp_path)
    assert (graph.texts, graph.class_names) == (["a", "b", "c", "d"], ("Animals", "Science"))


def wikics_files():
    masks = [[True, False, False, False], [False, False, True, False]]
    graph = {
        "labels": [0, 1, 1, 0],
        "links": [[1, 1], [0], [2], [0]],
        "train_masks": masks,
        "val_masks": [[False, True, False, False]] * 2,
        "test_mask": [False, False, False, True],
    }
    nodes = [{"title": f"Page_{i}", "tokens": ["some", "words"]} for i in range(4)]
    return graph, {"labels": {"0": "Compilers", "1": "Databases"}, "nodes": nodes}


def test_wikics_comes_with_official_masks_and_goes_on_where_it_stopped(tmp_path, web, small):
    small("wikics", 4, 5, 2)  # 2 edges both ways and the self loop: how the published number counts
    pages, ranges = web
    graph, meta = (json.dumps(part).encode() for part in wikics_files())
    base = "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/"
    pages[base + "data.json"], pages[base + "metadata.json"] = (graph, 40), (meta, None)
    with pytest.raises(DataError, match=f"40 of {len(graph)} bytes arrived"):
        fetch("wikics", tmp_path, print)
    pages[base + "data.json"] = (graph, None)
    card = fetch("wikics", tmp_path, print)
    assert ranges == [None, "bytes=40-", None]
    found = load_graph("wikics", tmp_path)
    assert found.texts[1] == "Page 1\nsome words"
    assert found.class_names == ("Compilers", "Databases")
    assert found.split.tolist() == [TRAIN, VAL, NO_SPLIT, TEST]
    assert card["split"]["official"]
    folder = tmp_path / "downloads" / "wikics"
    card = import_graph([folder], "wikics", tmp_path / "other", Options(split_index=1))
    assert load_graph("wikics", tmp_path / "other").split.tolist() == [NO_SPLIT, VAL, TRAIN, TEST]
    (folder / "data.json").write_text("{}")
    with pytest.raises(DataError, match="official Wiki-CS files"):
        import_graph([folder], "wikics", tmp_path / "third")


def test_ogbn_arxiv_joins_texts_by_paper(tmp_path, web, small):
    small("ogbn-arxiv", 4, 3, 2)
    assert CATALOGUE["ogbn-arxiv"].counting == ARCS
    members = {
        "raw/edge.csv.gz": "0,1\n1,0\n2,3\n",
        "raw/node-label.csv.gz": "0\n1\n1\n0\n",
        "mapping/nodeidx2paperid.csv.gz": "node idx,paper id\n0,900\n1,100\n2,500\n3,300\n",
        "split/time/train.csv.gz": "0\n1\n",
        "split/time/valid.csv.gz": "2\n",
        "split/time/test.csv.gz": "3\n",
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for path, text in members.items():
            out.writestr(f"arxiv/{path}", gzip.compress(text.encode()))
    titles = (
        'paper id\ttitle\tabs\n100\tone "quoted\tsecond\n'
        "900\tnine\tfirst\n77\tnot here\t-\n300\tthree\t\n"
    )
    pages, _ = web
    base = "https://snap.stanford.edu/ogb/data/"
    pages[base + "nodeproppred/arxiv.zip"] = (archive.getvalue(), None)
    pages[base + "misc/ogbn_arxiv/titleabs.tsv.gz"] = (gzip.compress(titles.encode()), None)
    with pytest.warns(UserWarning, match="1 of 4 nodes have an empty text"):
        fetch("ogbn-arxiv", tmp_path, print)
        graph = load_graph("ogbn-arxiv", tmp_path)
    assert graph.texts == ["nine\nfirst", 'one "quoted\nsecond', "", "three\n"]
    assert graph.split.tolist() == [TRAIN, TRAIN, VAL, TEST]
    assert graph.num_edges == 2
    (tmp_path / "downloads" / "ogbn-arxiv" / "arxiv.zip").write_bytes(archive.getvalue()[:-30])
    with pytest.raises(DataError, match="complete archive"):
        import_graph([tmp_path / "downloads" / "ogbn-arxiv"], "ogbn-arxiv", tmp_path / "other")


def test_a_broken_record_is_refused(tmp_path):
    (tmp_path / "downloads" / "cora").mkdir(parents=True)
    (tmp_path / "downloads" / "cora" / "lock.json").write_text("{")
    with pytest.raises(DataError, match="recorded hashes"):
        fetch("cora", tmp_path, print)


def test_the_documentation_names_every_data_set():
    text = (PROJECT / "docs" / "datasets.md").read_text(encoding="utf-8")
    for name, row in CATALOGUE.items():
        assert f"| {name} |" in text
        assert f"{row.edges:,}" in text
        assert all((file.repo or file.short) in text for file in row.files)
    assert all(f"`{name}`" in text for name in DATASETS.builtin)
