"""What a run listens on: this machine alone, and for nobody without its credentials."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from dance_flwr.runs.simulation.superlink_process import sender
from support.killing import Killed, asks
from support.processes import Started, is_public

from dance_flwr.config.text import to_toml
from dance_flwr.deploy.superlink import SuperLink
from dance_flwr.errors import UserError
from dance_flwr.runs.processes import free_port, private_superlink

NOBODY = 65534
RUNS_A_TASK = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
print(ray.get(ray.remote(num_cpus=0)(lambda: "it " + "ran").remote()))
"""
GETS = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
HANGS_UP = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"POST")
"""


@pytest.mark.flower
@pytest.mark.xdist_group("engine")
def test_a_run_listens_on_this_machine_alone_and_asks_for_its_token(
    run, run_config, dance, tmp_path
):
    """The run masks its updates, which changes no number of its rounds, and its terminal is closed:
    nothing is left.
    """
    with pytest.raises(Killed):
        run(folder=tmp_path / "here", rounds=5000, on_message=asks("train", 4))
    root = dance.partition.parent.parent  # of the same client folders
    keys = {"rounds": 5000, "data_root": str(root), "privacy_secure_aggregation": True}
    config = run_config(out=str(tmp_path / "out"), **keys)
    (tmp_path / "config.toml").write_text(to_toml(config))
    command = ["dance-flwr", "run", "--config", tmp_path / "config.toml"]
    started = Started(command, tmp_path, terminal=True)
    try:
        started.wait_for(tmp_path, "out/history.jsonl")
        found = started.listeners()
        names = " ".join(name for name, _, _ in found)
        assert all(part in names for part in ("gcs_server", "raylet", "flwr-simulation", "ray::"))
        assert [row for row in found if is_public(row[1])] == []
        (port,) = {port for name, _, port in found if "gcs_server" in name}
        secrets = {}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
        with started.paused("ray::"), ThreadPoolExecutor(2) as pool:
            attempts = list(pool.map(lambda secret: intrude(f"127.0.0.1:{port}", secret), secrets))
        for done in attempts:
            assert "it ran" not in done.stdout
            assert "nauthenticated" in done.stderr or "InvalidAuthToken" in done.stderr
        (private,) = started.homes()
        started.close_terminal()
        assert started.left(120) == [] and not private.exists()
        rows = zip(*(rows_of(tmp_path / name) for name in ("here", "out")), strict=False)
        for open_, masked in rows:
            for name in ("val_accuracy", "val_macro_f1", "views", "counts", "absent"):
                assert open_[name] == masked[name], (name, masked["round"])
            assert open_["loss"] == pytest.approx(masked["loss"], abs=1e-5)
    finally:
        started.kill()


def rows_of(folder):
    """The history of a run."""
    return map(json.loads, (folder / "history.jsonl").read_text().splitlines())


def intrude(address, secret):
    """Try to run a task in the cluster at an address."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return subprocess.run(
        [sys.executable, "-c", RUNS_A_TASK, address],
        env=os.environ | loopback | secret,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """A private SuperLink."""
    with private_superlink(tmp_path_factory.mktemp("link") / "superlink.log") as running:
        yield running


@pytest.fixture(scope="module")
def url(link):
    """Its address."""
    text = (link.home / "config.toml").read_text()
    return f"http://{text.split('address = ')[1].split(chr(34))[1]}"


def status(url, *, method="POST", **headers):
    """The HTTP status of an empty request."""
    headers = {"Content-Type": "application/protobuf"} | headers
    body = b"" if method == "POST" else None
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, headers, method=method), timeout=10
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_owner_may_command(link):
    assert link.flwr("list", "private")["success"]
    assert link.home.stat().st_mode & 0o777 == 0o700


def test_a_command_without_the_token_is_refused(link, tmp_path):
    (tmp_path / "config.toml").write_bytes((link.home / "config.toml").read_bytes())
    stranger = SuperLink(tmp_path, link.environment | {"FLWR_HOME": str(tmp_path)}, link.log)
    with pytest.raises(UserError, match="403"):
        stranger.flwr("list", "private")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/control/list-runs", 403),
        ("/v1/control/start-run", 403),
        ("/v1/fleet/register-node", 403),
        ("/v1/runtime/acquire-task", 401),
        ("/v1/runtime/pull-task-input", 401),
        ("/v1/runtime/push-task-output", 401),
    ],
)
def test_every_door_asks(url, path, expected):
    assert status(url + path) == expected
    assert status(url + path, Authorization="Bearer guessed") == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's table of connections")
def test_another_user_is_refused_at_every_door(url):
    for user, expected in ((os.getuid(), "200"), (NOBODY, "403")):
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-I", "-c", GETS, f"{url}/health"],
            user=user,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's table of connections")
def test_another_user_that_hangs_up_is_not_taken_for_root():
    """A request may be sent and its connection closed before anyone looks whose it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = ["/usr/bin/env", "python3", "-I", "-c", HANGS_UP, str(server.getsockname()[1])]
        subprocess.run(command, user=NOBODY, env={"PATH": os.defpath}, check=True)
        connection, client = server.accept()
        with connection:
            assert connection.recv(4) == b"POST"
            assert sender(client, server.getsockname()) == -1


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's table of connections")
def test_a_connection_that_the_kernel_does_not_know_has_no_sender():
    assert sender(("127.0.0.1", free_port()), ("127.0.0.1", free_port())) == -1
