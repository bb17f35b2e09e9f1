"""`dance-flwr supernode`: Flower's SuperNode, and the process that forks for its tasks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.processes import free_port, wait_until
from support.project import PROJECT

from dance_flwr.deploy import prefork
from dance_flwr.deploy import supernode as module
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import flower_environment
from dance_flwr.runs.processes import lives

# `load` must import all libraries that a task needs; it must leave one thread, or forking is not
# safe (pyarrow's allocator has one, and stops it for a fork); and it must not ask for a GPU: what
# CUDA opens, a fork cannot use.
LOADED = """
import os, sys, torch
from pathlib import Path
from dance_flwr.data.card import read_ids
asked = []
for name in ("is_available", "device_count", "init", "current_device"):
    setattr(torch.cuda, name, lambda *_, name=name: asked.append(name) or 0)
from dance_flwr.deploy import prefork
app = prefork.load()
threads = {task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
packages = lambda: {name.split(".")[0] for name in sys.modules}
before = packages()
from dance_flwr.methods import get_spec
get_spec("dance").make_client()
cuda = list(asked)  # of `load`; a fork may ask
from dance_flwr.config.sections import TrainingConfig
from dance_flwr.nn.training import train_epochs
layer = torch.nn.Linear(2, 2)
train_epochs(layer, lambda: layer(torch.ones(1, 2)).sum(), TrainingConfig(), round_=1)
read_ids(Path(sys.argv[1]))
late = packages() - before - set(sys.stdlib_module_names)
print(threads - {"jemalloc_bg_thd"}, type(app).__name__, cuda, sorted(late))
"""


def test_all_that_a_task_needs_is_loaded_in_one_thread(dance):
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADED, str(dance.partition / "client-0")],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.stdout == "{'python'} ReticentApp [] []\n", done.stdout + done.stderr


# Whether a process reads the memory of another one of its user, which root may always.
READS = """
import ctypes, os, signal
from dance_flwr.deploy.prefork import close_memory
libc = ctypes.CDLL(None)
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
    libc.prctl(4, 1, 0, 0, 0)  # as any process that has not just changed its user
for close in (lambda: None, close_memory):
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        close()
        if os.fork() == 0:  # for a task
            os.write(begins, b"%d" % os.getpid())
        signal.pause()
    for pid in (child, int(os.read(begun, 20))):
        attached = libc.ptrace(16, pid, None, None) == 0
        try:
            open(f"/proc/{pid}/mem").close()
            print("reads", attached)
        except PermissionError:
            print("may not", attached)
        os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace differs elsewhere")
def test_no_process_of_its_user_reads_the_memory_of_one_that_holds_keys():
    done = subprocess.run(
        [sys.executable, "-c", READS], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.stdout.splitlines() == ["reads True"] * 2 + ["may not False"] * 2, done.stderr


@pytest.fixture
def supernode(tmp_path):
    """A SuperNode that has no SuperLink yet, the process of its tasks, and their private folder."""
    command = ["dance-flwr", "supernode", "--insecure", "--superlink", f"127.0.0.1:{free_port()}"]
    log = tmp_path / "log"
    process = ProcessTree(command, flower_environment(tmp_path), tmp_path, log)
    wait_until(lambda: "running on unix socket" in log.read_text())
    (tasks,) = psutil.Process(process.pid).children()
    yield process, tasks, Path(tasks.cmdline()[-1])
    stop(process)


@pytest.mark.parametrize(("which", "number"), [(0, "SIGTERM"), (0, "SIGKILL"), (1, "SIGKILL")])
def test_both_processes_end_together_and_leave_nothing(supernode, which, number):
    process, tasks, folder = supernode
    (process, tasks)[which].send_signal(signal.Signals[number])
    assert process.wait(60) == 1 or which == 0
    wait_until(lambda: not lives(tasks))
    assert not folder.exists()


def test_tasks_end_if_their_supernode_ended_before_they_looked(tmp_path):
    command = [sys.executable, "-P", "-m", prefork.__name__, "1", tmp_path / "own"]
    assert subprocess.run(command, timeout=30).returncode == 0


ENDS_EARLY = """
import threading, time
from dance_flwr.deploy import supernode
def start():
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise KeyboardInterrupt
supernode.flower.flower_supernode = start
supernode.run_supernode([])
"""


def test_a_supernode_ends_by_a_signal_before_flower_heeds_any():
    assert subprocess.run([sys.executable, "-c", ENDS_EARLY], timeout=60).returncode == 130


def test_its_socket_is_of_its_user_alone_and_a_crash_leaves_no_memory(supernode, tmp_path):
    """It says, too, which terms it lacks, and ends in order if a signal reaches all processes."""
    process, tasks, folder = supernode
    assert (folder / prefork.SOCKET).is_socket()
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (os.getuid(), 0o700)
    for each in (psutil.Process(process.pid), tasks):
        assert each.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    line = "found none of secure-aggregation, min-clients, methods, max-rounds, max-trainings"
    assert line in (tmp_path / "log").read_text()
    # As a service manager sends a signal: the process of the tasks waits for the SuperNode.
    tasks.terminate()
    time.sleep(1)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == 0
    assert "SuperNode terminated gracefully" in (tmp_path / "log").read_text()


def test_a_node_asks_often_after_a_message_and_an_idle_one_as_flower_s(monkeypatch):
    clock = SimpleNamespace(now=0.0, slept=[])
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(module.time, "sleep", clock.slept.append)
    sleep = module.pauses()
    sleep(3)  # no message has come yet
    sleep(0.5)  # a task is at work
    for clock.now in (0.0, 10.0, 100.0):
        sleep(3)
    assert clock.slept == [3, 0.1, 0.25, 1.0, 3]


@pytest.mark.parametrize("environment", ["", "0a 0b"])
def test_accepted_differences_are_options_or_of_the_environment(cli, monkeypatch, environment):
    calls = []
    monkeypatch.setattr(module, "run_supernode", lambda *arguments: calls.append(arguments))
    monkeypatch.setenv("DANCE_FLWR_ACCEPT_CODE", environment)
    options = ["--superlink", "host:1", "--node-config", "partition-id=0"]
    named = [] if environment else ["--accept-code", "0a", "--accept-code=0b"]
    assert cli("supernode", *options[:2], *named, *options[2:]).code == 0
    ((arguments, accepted),) = calls
    assert (list(arguments), list(accepted)) == (options, ["0a", "0b"])


# A process of tasks whose first task is at work when the SuperNode ends, and hears no SIGINT.
AT_WORK = """
import os, signal, sys, time
from pathlib import Path
from dance_flwr.deploy import prefork

def work(token, server):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path(sys.argv[2]).write_text(str(os.getpid()))
    time.sleep(600)

tokens = ["task"]
prefork.load = lambda: None
prefork.acquire = lambda client: tokens.pop() if tokens else ""
prefork._run_task = work
prefork.serve(os.getppid(), Path(sys.argv[1]), ())
"""
SUPERNODE = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def test_a_task_ends_with_its_supernode(tmp_path):
    folder, pid = tmp_path / "socket", tmp_path / "pid"
    folder.mkdir()
    command = [sys.executable, "-c", SUPERNODE, AT_WORK, str(folder), str(pid)]
    supernode = subprocess.Popen(command, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    wait_until(lambda: pid.exists() and pid.read_text())
    task = psutil.Process(int(pid.read_text()))
    try:
        supernode.kill()
        supernode.wait()
        wait_until(lambda: not lives(task), 10)
        wait_until(lambda: not folder.exists(), 10)
    finally:
        if task.is_running():
            task.kill()
