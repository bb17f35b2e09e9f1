"""One trained model and the graph of one of its clients, for all tests of the API."""

import pytest


@pytest.fixture(scope="session")
def model(dance, tmp_path_factory):
    """The model of the session's finished run, exported and loaded."""
    from dance_flwr.api import load
    from dance_flwr.api.bundle import export

    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    export(dance.folder, folder)
    return load(folder)


@pytest.fixture(scope="session")
def graph(dance):
    """The graph of client 2, with its split."""
    from dance_flwr.data.graphs.folder import read_folder

    return read_folder(dance.partition / "client-2")
