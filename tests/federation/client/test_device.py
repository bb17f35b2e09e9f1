"""The device of a client: the node's choice, its share of the memory, its name in the result."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import client_app
import server_app
from dance_flwr.config.tree import flatten
from dance_flwr.errors import QuorumError
from dance_flwr.federation.client.client import Client, close_clients, open_client
from dance_flwr.federation.client.device import claim, memory_ratio, pick_device
from dance_flwr.nn.moving import HOST
from dance_flwr.runs.result import read_result
from dance_flwr.runs.simulation.in_process import InProcessGrid
from dance_flwr.runs.simulation.ray_engine import resources

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture
def gpus(monkeypatch):
    """A function that makes torch see this many GPUs, and the calls that it receives."""
    asked = []

    def see(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append(str(device)))
        monkeypatch.setattr(
            torch.cuda,
            "set_per_process_memory_fraction",
            lambda ratio, device: asked.append((ratio, str(device))),
        )
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card {device.index}")
        return asked

    return see


@pytest.mark.parametrize(
    ("run", "count", "node", "expected"),
    [
        ("auto", 0, {}, "cpu"),
        ("auto", 2, {}, "cuda:0"),
        ("auto", 2, {"device": "auto"}, "cuda:0"),
        ("auto", 2, {"device": "cuda"}, "cuda:0"),
        ("auto", 2, {"device": "cuda:1"}, "cuda:1"),
        ("auto", 2, {"device": "cpu"}, "cpu"),
        ("cpu", 2, {"device": "cuda:1"}, "cpu"),
        ("cpu", 0, {"device": "cuda:1"}, "cpu"),
    ],
)
def test_the_node_s_choice_wins_and_a_run_on_cpu_stays_there(
    run_config, gpus, run, count, node, expected
):
    gpus(count)
    assert str(pick_device(run_config(device=run), node)) == expected


def test_a_share_is_set_on_the_device_and_on_no_cpu(gpus):
    asked = gpus(2)
    with claim(torch.device("cpu"), 0.5):
        assert asked == []
    with claim(torch.device("cuda:1"), None):
        assert asked == ["cuda:1"]
    with claim(torch.device("cuda:1"), 0.5):
        assert asked == ["cuda:1", "cuda:1", (0.5, "cuda:1")]


def test_an_opened_client_stays_on_the_device_it_was_opened_on(dance, gpus):
    """The same folder and configuration on another device is another client."""
    gpus(0)
    folder = dance.partition / "client-0"
    first = open_client(folder, dance.config, torch.device("cpu"))
    assert open_client(folder, dance.config) is first
    assert open_client(folder, dance.config, torch.device("meta")).data.device.type == "meta"


def test_opened_clients_hold_no_descriptors_and_are_as_many_as_memory_has_room_for(
    dance, tmp_path, monkeypatch
):
    close_clients()
    for number in range(300):
        (tmp_path / f"client-{number}").symlink_to(dance.partition / "client-0")
    before = len([*Path("/dev/fd").iterdir()])
    opened = [open_client(tmp_path / f"client-{n}", dance.settled, HOST) for n in range(300)]
    assert {(len(o.data.table.nodes), o.data.chunk_sha256.shape[1]) for o in opened} == {(25, 32)}
    assert len([*Path("/dev/fd").iterdir()]) == before
    assert open_client(tmp_path / "client-0", dance.settled, HOST) is opened[0]
    monkeypatch.setattr(
        "dance_flwr.federation.client.client.limits", lambda: SimpleNamespace(memory=0)
    )
    assert open_client(tmp_path / "client-0", dance.settled, HOST) is opened[0]
    open_client(dance.partition / "client-0", dance.settled, HOST)
    assert open_client(tmp_path / "client-0", dance.settled, HOST) is not opened[0]
    # So does a run with other settings on the same data.
    kept = open_client(dance.partition / "client-0", dance.settled, HOST)
    open_client(dance.partition / "client-0", replace(dance.settled, seed=9), HOST)
    assert open_client(dance.partition / "client-0", dance.settled, HOST) is not kept


# Federations of nodes that name their own devices


@pytest.fixture
def mixed(run_config, dance, tmp_path, gpus):
    """A function that runs three nodes with additions to their node configs."""
    gpus(0)

    def start(*more, **keys):
        config = run_config(rounds=1, device="auto", out=str(tmp_path / "out"), **keys)
        nodes = {
            client + 1: {
                "partition-id": client,
                "data-path": str(dance.partition / f"client-{client}"),
            }
            | extra
            for client, extra in enumerate(more)
        }
        grid = InProcessGrid(client_app.app, flatten(config), nodes)
        server_app.run(grid, config, tmp_path.name, tmp_path / "out")
        return read_result(tmp_path / "out")

    return start


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"device": "cuda:7"}, r"device: .*\(cpu\), found 'cuda:7'"),
        ({"gpu-memory-ratio": 2}, "gpu-memory-ratio: .*2"),
    ],
)
def test_a_wrong_node_config_ends_the_run_before_training_and_names_the_client(
    mixed, monkeypatch, extra, words
):
    monkeypatch.setattr(Client, "train", lambda *_, **__: pytest.fail("no client may train"))
    with pytest.raises(QuorumError, match=rf"client 1: {words}.*--node-config") as error:
        mixed({}, extra, {})
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_memory_that_is_too_small_is_one_line_after_others_were_closed(run, monkeypatch, times):
    """The first time, the process closes its other clients and repeats the task."""
    honest, left = Client.train, [times]

    def train(self, *arguments, **keys):
        if self.data.card.client == 1 and left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return honest(self, *arguments, **keys)

    monkeypatch.setattr(Client, "train", train)
    if times == 1:
        assert run(rounds=1).result["history"]
    else:
        with pytest.raises(
            QuorumError,
            match=r"client 1: cpu: expected this client to fit into 100 % of its memory",
        ):
            run(rounds=1)


# Simulation: the share that Ray gives


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_every_client_finds_room_on_the_gpus(run_config, count):
    for clients in (*range(1, 33), 50, 64, 100):
        config = replace(run_config(device="auto"), clients=clients)
        share = resources(config, count)["num_gpus"]
        # Flower's own arithmetic: the share travels as float32, the actors are as many as fit into
        # all GPUs together.
        actors, on_one = int(count / float(np.float32(share))), int(1 / share + 1e-9)
        fair = -(-clients // count)
        assert clients <= actors and fair <= on_one <= fair + clients // 50 and share <= 1, clients


def test_no_gpu_is_asked_for_without_one_or_on_cpu(run_config):
    assert resources(run_config(device="auto"), 0)["num_gpus"] == 0
    assert resources(run_config(device="cpu"), 2)["num_gpus"] == 0


@pytest.mark.parametrize(
    ("actor", "resources", "expected"),
    [
        ("a1", {"CPU": 1.0, "GPU": 0.25}, 0.25),
        ("a1", {"CPU": 1.0}, None),
        ("a1", {"GPU": 2.0}, 1.0),
        (None, {}, None),
    ],
)
def test_an_actor_of_ray_has_its_share_and_a_node_s_own_word_wins(
    monkeypatch, actor, resources, expected
):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert memory_ratio({}) is None
    there = SimpleNamespace(get_actor_id=lambda: actor, get_assigned_resources=lambda: resources)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: there)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert memory_ratio({}) == expected
    assert memory_ratio({"gpu-memory-ratio": 0.5}) == 0.5


@pytest.mark.parametrize(("own", "expected"), [({}, ":4096:8"), ({_CUBLAS: ":16:8"}, ":16:8")])
def test_products_repeat_from_the_first_one_of_a_process(own, expected):
    """Also where that is to encode texts, before any message; a user's own choice stays."""
    environment = {name: value for name, value in os.environ.items() if name != _CUBLAS} | own
    code = f"import os, dance_flwr; print(os.environ[{_CUBLAS!r}])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
