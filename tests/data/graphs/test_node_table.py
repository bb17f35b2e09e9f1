"""A column of a node table is one line of `TextGraph`; all that handles graphs follows."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from support.partitions import SPEC, cliques

from dance_flwr.api import federating
from dance_flwr.config.tree import parse
from dance_flwr.data.client_folder import write_partition
from dance_flwr.data.graphs import folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.imports import assemble, reading, roles
from dance_flwr.data.imports.options import DEFAULTS
from dance_flwr.data.partition import client_nodes, make_partition, manifest
from dance_flwr.data.prepare import text_bank
from dance_flwr.errors import DataError


@dataclass(frozen=True)
class Coloured(TextGraph):
    """A graph with one column more."""

    colour: np.ndarray | None = field(default=None, metadata={"column": "paint"})


@pytest.fixture
def graph(monkeypatch):
    for module in (folder, federating, roles, assemble):
        monkeypatch.setattr(module, "TextGraph", Coloured)
    plain = cliques(3, 4)
    return Coloured(**vars(plain), colour=np.array([f"shade {i}" for i in range(12)]))


def test_clients_get_their_part_of_it(graph, tmp_path):
    partition = make_partition(graph, replace(SPEC, clients=2))
    write_partition(
        graph, partition, manifest(graph, partition), tmp_path / "out", text_bank(parse({}))
    )
    for k in (0, 1):
        local = folder.read_folder(tmp_path / "out" / f"client-{k}")
        assert local.colour.tolist() == graph.colour[client_nodes(partition, k)].tolist()


def test_institutions_join_it(graph):
    both = federating.together([graph, cliques(3, 4)], parse({}))
    assert both.colour.tolist() == [*graph.colour.tolist(), *[""] * 12]
    assert both.site.tolist() == ["0"] * 12 + ["1"] * 12


def test_an_import_reads_it(graph, tmp_path):
    files = [tmp_path / "nodes.csv", tmp_path / "edges.csv"]
    files[0].write_text("id,text,label,Paint\na,one,x,red\nb,two,y,blue\n")
    files[1].write_text("source,target\na,b\n")
    reading.prepare(files, "toy", DEFAULTS, tmp_path)
    assert folder.read_folder(tmp_path).colour.tolist() == ["red", "blue"]


def test_its_length_is_checked(graph):
    with pytest.raises(DataError, match="expected 12 entries of colour, one per node, found 1"):
        replace(graph, colour=np.array(["red"]))
