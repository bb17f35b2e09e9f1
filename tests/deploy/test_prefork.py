"""ClientApps of a SuperNode forked from one process that has loaded the libraries."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dance_flwr.deploy import prefork
from dance_flwr.runs.simulation.process_tree import ProcessTree, start, stop, tool

CODE = str(Path(prefork.__file__))
SEND = [sys.executable, "-I", "-S", CODE, "send"]
SAYS = "Run a Flower ClientApp"

# `serve` must load all libraries that a task needs and nothing of the app; it must have one thread,
# or forking is not safe.
LOADED = f"""
import os, runpy, sys
prefork = runpy.run_path({CODE!r})
prefork["_load"]()
threads = len(os.listdir("/proc/self/task"))
packages = lambda: {{name.split(".")[0] for name in sys.modules}}
before = packages()
own = sorted(before & {{"dance_flwr", "client_app", "server_app"}})
import client_app
from dance_flwr.federation.client import handlers
from dance_flwr.methods import get_spec
get_spec("dance").make_client()
torch = sys.modules["torch"]
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
new = packages() - before
print(threads, own, sorted(new - set(sys.stdlib_module_names) - {{"dance_flwr", "client_app"}}))
"""


def test_the_libraries_of_a_task_are_loaded_and_nothing_of_the_app():
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, cwd=Path(CODE).parents[2]
    )
    assert done.stdout.split("\n")[0] == "1 [] []", done.stdout + done.stderr


@pytest.fixture
def served(tmp_path):
    """A process that forks, below one that stands for the SuperNode; its folder and its output."""
    folder, log = tmp_path / "prefork", tmp_path / "log"
    folder.mkdir()
    command = f"[sys.executable, '-P', {CODE!r}, 'serve', {str(folder)!r}]"
    above = f"import subprocess, sys; subprocess.run({command})"
    process = ProcessTree([sys.executable, "-c", above], os.environ, tmp_path, log)
    wait(lambda: (folder / prefork.SOCKET).exists())
    yield folder, log, process
    stop(process)


def wait(done, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_sender_gets_a_process_that_runs_flowers_command(served):
    folder, log, _ = served
    for _ in range(3):
        subprocess.run([*SEND, str(folder), "--help"], check=True)
    wait(lambda: log.read_text().count(SAYS) == 3)
    subprocess.run(
        [*SEND, str(folder), "--no-such-option"], check=True
    )  # the child fails, the next one does not
    wait(lambda: "flwr-clientapp: error:" in log.read_text())
    subprocess.run([*SEND, str(folder), "--help"], check=True)
    wait(lambda: log.read_text().count(SAYS) == 4)


def test_it_ends_with_the_process_above_it_and_leaves_nothing(served):
    folder, _, process = served
    process.kill()
    process.wait()
    wait(lambda: not folder.exists())


def test_where_nobody_listens_flowers_own_command_runs(tmp_path):
    done = subprocess.run(
        [*SEND, str(tmp_path), "--help"], capture_output=True, text=True, check=True
    )
    assert SAYS in done.stdout


def test_where_no_program_may_be_run_flowers_own_way_is_left(tmp_path):
    temporary = tmp_path / "noexec"
    temporary.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "noexec", "none", temporary], capture_output=True
    ).returncode:
        pytest.skip("mounting a file system is not permitted")
    log = tmp_path / "log"
    try:
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(temporary)}
        process = start(["dance-flwr", "supernode", "--no-such-option"], environment, tmp_path, log)
        assert process.wait(60) == 2
        assert not list(temporary.iterdir())
    finally:
        subprocess.run(["umount", temporary], check=True)
    assert f"found {temporary}; every message waits for its imports" in log.read_text()


def test_a_supernode_is_flowers_with_our_command_before_flowers(tmp_path):
    log = tmp_path / "log"
    process = start(
        ["dance-flwr", "supernode", "--no-such-option"], {"PATH": "/usr/bin:/bin"}, tmp_path, log
    )
    assert process.wait(60) == 2
    assert "flower-supernode: error: unrecognized arguments: --no-such-option" in log.read_text()
    assert tool(prefork.COMMAND).is_file()
