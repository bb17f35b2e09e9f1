"""Commands that are started to be stopped."""

import pytest

from dance_flwr.data.prepare import prepare
from support.processes import Started

PATIENCE_SECONDS = 400  # of a machine that does much else


@pytest.fixture(scope="module")
def data_root(run_config, tmp_path_factory):
    """A data root in which the client folders are made."""
    root = tmp_path_factory.mktemp("root")
    prepare(run_config(data_root=str(root)), lambda line: None)
    return root


@pytest.fixture
def begin(tmp_path):
    """A function that starts a command and waits for a line in a file below the folder."""
    begun = []

    def start(command, pattern):
        begun.append(Started(command, tmp_path))
        begun[-1].wait_for(tmp_path, pattern)
        return begun[-1]

    yield start
    for started in begun:
        started.kill()
