"""The residual of a client: repeated rounds, lost and damaged folders."""

import logging

import pytest
import torch

from dance_flwr.federation.client import uploads as module
from dance_flwr.federation.client.uploads import PREVIOUS_RESIDUAL, RESIDUAL, ResidualFile

LIKE = {"w": torch.zeros(2, 2).double(), "b": torch.zeros(()).double()}
ZERO = [0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.fixture
def client(tmp_path):
    """Functions that load and save like a client that was started anew for each message."""

    class Client:
        folder = tmp_path / "runs" / "run"

        def load(self, round_):
            found = ResidualFile(tmp_path, "run", 3).load(LIKE, round_)
            assert {name: t.shape for name, t in found.items()} == {
                name: t.shape for name, t in LIKE.items()
            }
            return torch.cat([t.ravel() for t in found.values()]).tolist()

        def round(self, round_, value):
            file = ResidualFile(tmp_path, "run", 3)
            file.load(LIKE, round_)
            file.save({name: torch.full_like(t, value) for name, t in LIKE.items()}, round_)

    return Client()


def warned(caplog):
    return [r.message for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("damage", ["lost", "cut", "other model"])
def test_a_lost_folder_is_one_warning(client, caplog, damage):
    client.round(1, 0.5)
    client.round(2, 0.25)
    for name in (RESIDUAL, PREVIOUS_RESIDUAL):
        path = client.folder / name
        if damage == "lost":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:100])
        else:
            ResidualFile(path.parents[2], "run", 3).save({"w": torch.zeros(9)}, 2)
            path.replace(client.folder / PREVIOUS_RESIDUAL)
    assert client.load(3) == ZERO
    (line,) = warned(caplog)
    assert "client 3" in line and "starts from zero" in line and "\n" not in line
    client.round(3, 0.125)
    assert client.load(4) == [0.125] * 5


def test_a_process_reads_a_residual_only_where_another_one_changed_it(
    client, tmp_path, monkeypatch
):
    """What is remembered changes nothing: not in a repeated round, nor once a file is another."""
    values, names, read_npz = {}, [], module.read_npz
    monkeypatch.setattr(module, "read_npz", lambda path: names.append(path.name) or read_npz(path))

    def cached(name, key, compute):
        if values.get(name, (None,))[0] != key:
            values[name] = key, compute()
        return values[name][1]

    def load(round_):
        file = ResidualFile(tmp_path, "run", 3, cached)
        return file, torch.cat([t.ravel() for t in file.load(LIKE, round_).values()]).tolist()

    for round_, value in ((1, 0.5), (2, 0.25)):
        load(round_)[0].save({name: torch.full_like(t, value) for name, t in LIKE.items()}, round_)
    assert load(3)[1] == [0.25] * 5 and names == []
    assert load(2)[1] == [0.5] * 5 and names == [PREVIOUS_RESIDUAL]
    client.round(2, 0.125)  # by another process
    assert load(3)[1] == [0.125] * 5
    (client.folder / RESIDUAL).write_bytes(b"damaged")
    assert load(3)[1] == [0.5] * 5
