import shutil

import pytest
import torch

from dance_flwr.client_data.client_data import ClientData


@pytest.fixture
def data(dance, tmp_path):
    """A client of a finished run, in a folder of its own without what the run left there."""
    source = dance.partition / "client-0"
    shutil.copytree(source, tmp_path / "client-0", ignore=shutil.ignore_patterns("runs"))
    return ClientData(tmp_path / "client-0", torch.device("cpu"))
