"""Plots of a partition: whole or not at all, and only into an existing folder."""

import pytest
from support.partitions import SPEC, cliques

from dance_flwr.data.partition import make_partition, manifest
from dance_flwr.data.partition.plot import plot
from dance_flwr.errors import DataError

pytest.importorskip("matplotlib")


@pytest.fixture
def content():
    graph = cliques(3, 4)
    return manifest(graph, make_partition(graph, SPEC))


def test_the_suffix_decides_the_format(content, tmp_path):
    for name, magic in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a", b"\x89PNG")):
        plot(content, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.pdf", "a.png"]


@pytest.mark.parametrize("name", ["missing/plot.png", "plot.nothing"])
def test_a_file_that_cannot_be_written_is_refused(content, tmp_path, name):
    with pytest.raises(DataError, match="expected a writable file in an image format") as caught:
        plot(content, tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert name in str(caught.value)
