"""Arrays that follow from a client's folder: made once, whole or not there, the same on disk."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.builders import random_csr, rows_of
from support.killing import Killed

from dance_flwr.client_data import inputs as derived
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.plugins import BACKBONES
from dance_flwr.config.sections import ReadingConfig
from dance_flwr.data.text.bank_slice import SLICE_FILES
from dance_flwr.nn.backbone import normalise

CPU = torch.device("cpu")
HALF = {"atol": 2e-3, "rtol": 1e-3}


@pytest.fixture
def folder(dance, tmp_path):
    """A client's folder of its own."""
    source = dance.partition / "client-0"
    shutil.copytree(source, tmp_path / "client-0", ignore=shutil.ignore_patterns("runs", "derived"))
    return tmp_path / "client-0"


@pytest.fixture
def on_disk(monkeypatch):
    """Nothing is small enough to be kept in memory."""
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)


def backbone_of(name):
    torch.manual_seed(1)
    return BACKBONES.get(name)(384, 8, 0.0)


def files(folder):
    return sorted(path.name for path in (folder / "derived").iterdir())


@pytest.mark.parametrize("rows", [65_536, 7])
def test_a_client_on_disk_is_the_client_in_memory(folder, monkeypatch, rows):
    memory = ClientData(folder, CPU)
    wanted = (memory.table.nodes, memory.table.chunks, memory.features)
    kept = {name: memory.inputs(memory.graph, backbone_of(name)) for name in BACKBONES}
    assert not (folder / "derived").exists()
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(derived, "_ROWS", rows)
    disk = ClientData(folder, CPU)
    found = (disk.table.nodes, disk.table.chunks, disk.features)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.float(), other.float(), **HALF)
    assert disk.table.nodes.dtype == disk.table.chunks.dtype == torch.float16
    assert disk.features.dtype == torch.float32
    assert torch.equal(disk.table.chunks_of.ptr, memory.table.chunks_of.ptr)
    assert torch.equal(disk.table.chunks_of.index, memory.table.chunks_of.index)
    for name, inputs in kept.items():
        other = disk.inputs(disk.graph, backbone_of(name))
        torch.testing.assert_close(other.float(), inputs, atol=1e-2, rtol=5e-3)
    assert len(files(folder)) == 1 + len(BACKBONES)


def test_another_text_slice_replaces_what_followed_from_the_old_one(folder, on_disk):
    data = ClientData(folder, CPU)
    before = data.inputs(data.graph, backbone_of("gcn")).clone()
    names = files(folder)
    path = folder / "text" / "chunk_embeddings.npy"
    assert path.name in SLICE_FILES
    changed = np.load(path)
    changed[:] = changed[::-1].copy()
    np.save(path, changed)
    os.utime(path, ns=(1, 1))
    again = ClientData(folder, CPU)
    after = again.inputs(again.graph, backbone_of("gcn"))
    assert not torch.equal(before, after)
    assert len(files(folder)) == len(names) and not set(files(folder)) & set(names)


@pytest.mark.parametrize("error", [Killed, OSError, RuntimeError])
def test_an_array_is_whole_or_not_there(tmp_path, error):
    """An end in the middle of writing leaves no array and no draft; the next call writes it all."""

    def fill(out):
        out[:2] = 1
        raise error

    def whole(out):
        out[:] = 3

    for _ in range(2):
        with pytest.raises(error):
            derived.stored_array(tmp_path, "texts", "key", (5, 4), fill)
        assert not list(tmp_path.glob("*.npy"))
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert derived.stored_array(tmp_path, "texts", "key", (5, 4), whole).tolist() == [[3.0] * 4] * 5
    with pytest.raises(error):
        derived.stored_array(tmp_path, "texts", "other key", (5, 4), fill)
    assert derived.stored_array(tmp_path, "texts", "other key", (5, 4), whole).shape == (5, 4)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_killed_process_leaves_no_half_array(tmp_path):
    """A process that dies without a chance to tidy up: its draft is no array of the client."""
    import subprocess
    import sys

    code = (
        "import os, sys; from pathlib import Path\n"
        "from dance_flwr.client_data import inputs as derived\n"
        "def fill(out):\n    out[:2] = 1; out.flush(); os._exit(9)\n"
        "derived.stored_array(Path(sys.argv[1]), 'texts', 'key', (5, 4), fill)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True)
    assert done.returncode == 9, done.stderr
    assert not list(tmp_path.glob("texts-*.npy"))
    found = derived.stored_array(tmp_path, "texts", "key", (5, 4), lambda out: out.fill(2))
    assert found.tolist() == [[2.0] * 4] * 5


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("columns", [64, 100])
def test_inputs_in_columns_are_the_direct_ones(monkeypatch, name, columns):
    """384 columns in blocks of 64 or 100, rows in blocks of 7."""
    monkeypatch.setattr(derived, "_COLUMNS", columns)
    monkeypatch.setattr(derived, "_ROWS", 7)
    graph = LocalGraph(
        rows_of(random_csr(np.random.default_rng(1), 25, 0.2)), torch.ones(25).bool()
    )
    texts = torch.randn(25, 384, generator=torch.Generator().manual_seed(1))
    texts[3] = 0  # a node without text
    backbone = backbone_of(name)
    direct = backbone.inputs(normalise(texts), graph.operator(backbone.operator))
    torch.testing.assert_close(derived.resident_inputs(backbone, texts, graph), direct)
    out = np.zeros(direct.shape, np.float16)
    derived.backbone_inputs(backbone, texts, graph, out)
    torch.testing.assert_close(torch.tensor(out).float(), direct, atol=4e-3, rtol=1e-3)


def test_texts_by_agreement_are_kept_once_whatever_the_edges_weigh(folder, monkeypatch):
    condensed = ReadingConfig(text_pooling="agreement", text_temperature=0.3)
    gated = replace(condensed, edge_gates="agreement")
    memory = ClientData(folder, CPU, reading=gated)
    texts, gates = memory.table.nodes, memory.graph.gates
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
    disk = ClientData(folder, CPU, reading=gated)
    torch.testing.assert_close(disk.table.nodes.float(), texts, atol=1e-2, rtol=0)
    torch.testing.assert_close(disk.graph.gates, gates, atol=5e-2, rtol=0)
    on_disk, in_memory = (
        data.table.weights_in_texts(data.table.chunks_of, torch.float32) for data in (disk, memory)
    )
    torch.testing.assert_close(on_disk, in_memory, atol=5e-2, rtol=0)
    before = files(folder)
    assert [name.split("-")[0] for name in before] == ["texts", "texts"]
    assert not torch.equal(disk.table.nodes, ClientData(folder, CPU).table.nodes)
    ClientData(folder, CPU, reading=condensed).table  # noqa: B018
    assert files(folder) == before
    ClientData(folder, CPU, reading=replace(condensed, text_temperature=0.1)).table  # noqa: B018
    assert len(files(folder)) == 3


@pytest.mark.parametrize(("rows", "inside"), [(16, True), (17, False)])
def test_on_a_card_an_array_fits_into_an_eighth_of_the_share_of_the_process(
    monkeypatch, rows, inside
):
    """A quarter of 8,192 bytes: 256 for an array, whatever is free; on the host 256, too."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 8192))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.25)
    assert derived.fits(rows, 4, torch.device("cuda:0")) == inside
    monkeypatch.setattr(derived, "RESIDENT_BYTES", 256)
    assert derived.fits(rows, 4, CPU) == inside
