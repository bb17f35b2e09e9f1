"""A SuperNode between a server that sends other code and another user of its machine."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest
from support.project import PROJECT

from dance_flwr.data.prepare import prepare
from dance_flwr.errors import UserError
from dance_flwr.runs.reader import read_result
from dance_flwr.runs.simulation import superlink
from dance_flwr.runs.simulation.app_folder import submitted_app
from dance_flwr.runs.simulation.engine import follow
from dance_flwr.runs.simulation.process_tree import ProcessTree, stop
from dance_flwr.runs.simulation.superlink import flower_environment, free_port

sys.path.insert(0, str(PROJECT / "benchmarks"))
from local_deployment import local_deployment

NOBODY = 65534
ACQUIRES = b"\n\x0eflwr-clientapp"  # AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
# Knocks at each door, a port or the path of a Unix socket; prints those that open.
KNOCKS = f"""
import socket, sys, urllib.error, urllib.request
for door in sys.argv[1:]:
    if not door.isdigit():
        try:
            socket.socket(socket.AF_UNIX).connect(door)
        except OSError:
            continue
        print(door, "connected")
        continue
    for call in ("acquire-task", "pull-task-input", "push-task-output", "push-messages"):
        url = f"http://127.0.0.1:{{door}}/v1/runtime/{{call}}"
        kind = {{"Content-Type": "application/protobuf"}}
        request = urllib.request.Request(url, {ACQUIRES!r}, kind)
        try:
            print(door, call, urllib.request.urlopen(request, timeout=10).read())
        except (urllib.error.URLError, OSError):
            pass
"""
# What the honest run asks for, and no more.
TERMS = {"methods": "fedavg-full", "max-rounds": 2, "max-trainings": 4, "max-local-epochs": 2}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def doors(process):
    """The ports and the paths of Unix sockets at which processes of a tree listen."""
    found = set()
    for member in process.members():
        with suppress(psutil.Error):
            for end in member.net_connections("all"):
                if end.status == psutil.CONN_LISTEN:
                    found.add(str(end.laddr.port))
                elif isinstance(end.laddr, str) and end.laddr:
                    found.add(end.laddr)
    return found


def knock(doors, user):
    """What a process of that user gets at these doors."""
    # A program of the system: another user may not be allowed to read this environment.
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", KNOCKS, *sorted(doors)],
        user=user,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_root
def test_another_user_finds_no_door_of_a_supernode(tmp_path):
    command = ["dance-flwr", "supernode", "--insecure", "--superlink", f"127.0.0.1:{free_port()}"]
    environment = flower_environment(tmp_path)
    process = ProcessTree(command, environment, tmp_path, tmp_path / "log")
    try:
        deadline = time.monotonic() + 60
        while "Uvicorn running" not in (log := (tmp_path / "log").read_text()):
            assert time.monotonic() < deadline, log
            time.sleep(0.2)
        found = doors(process)
        assert knock(found, os.getuid())  # its own user does
        assert knock(found, NOBODY) == []
        lines = [" ".join(member.cmdline()) for member in process.members()]
        assert not any("--token" in line for line in lines)
    finally:
        stop(process)


@needs_root
@pytest.mark.flower
@pytest.mark.xdist_group("deployment")
def test_nodes_run_their_own_code_for_nobody_but_their_server(run_config, tmp_path, monkeypatch):
    keys = {"method": "fedavg-full", "clients": 2, "rounds": 2, "node_timeout": 60.0}
    honest = run_config(out=str(tmp_path / "honest"), **keys)
    folders = [prepare(honest).folder / f"client-{client}" for client in range(2)]
    trace, stolen = tmp_path / "trace", []

    def altered(scratch):
        app = submitted_app(scratch)
        with (app / "client_app.py").open("a") as code:
            code.write(f"\nfrom pathlib import Path\nPath({str(trace)!r}).write_text('ran')\n")
        return app

    with local_deployment(tmp_path / "deployment", folders, TERMS) as deployment:
        with monkeypatch.context() as other:
            other.setattr(superlink, "submitted_app", altered)
            other_run = deployment.link.submit(run_config(out=str(tmp_path / "altered"), **keys))
            with pytest.raises(UserError, match=r"client_app\.py"):
                follow(deployment.link, other_run, tmp_path / "altered", print)
        assert not trace.exists()

        ended = threading.Event()

        def steal():
            while not ended.is_set():
                stolen.extend(knock(doors(deployment.nodes[0]), NOBODY))
                time.sleep(0.2)

        thief = threading.Thread(target=steal)
        thief.start()
        try:
            run = deployment.link.submit(honest)
            follow(deployment.link, run, tmp_path / "honest", print)
        finally:
            ended.set()
            thief.join()
    assert stolen == []
    assert 0 < read_result(tmp_path / "honest")["test_accuracy"] <= 1
    # What a server sends is not unpacked at a node.
    assert [*(tmp_path / "deployment").glob("node-*/apps/*")] == []
