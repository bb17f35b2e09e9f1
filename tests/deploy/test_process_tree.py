"""Stopping a process stops what it started, however late and wherever its parent is by now."""

import os
import signal
import sys
import time
from contextlib import suppress

import psutil
import pytest

from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.runs.processes import stopping_in_order

# As a raylet: asked to end, it starts another process in a session of its own, and is gone.
STARTS_ANOTHER = """
import signal, subprocess, sys, time
def end(*_):
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_{}); time.sleep(60)"
    time.sleep(0.5)
    subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


# Its child has no mark, as one that has renamed itself, and is left by its parent at once.
LEAVES_A_CHILD = """
import os, signal, subprocess, sys, time
code = "import os, time; os.setsid() if {} else None; time.sleep(60)"
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
subprocess.Popen([sys.executable, "-c", code], env=dict())
print("ready", flush=True)
time.sleep(60)
"""
SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def tree(tmp_path):
    """A function that starts a tree, and waits until it listens to signals."""
    begun = []

    def begin(code):
        log = tmp_path / f"log-{len(begun)}"
        begun.append(ProcessTree([sys.executable, "-c", code], os.environ, tmp_path, log))
        deadline = time.monotonic() + 30
        while log.read_text() != "ready\n":
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        return begun[-1]

    yield begin
    for started in begun:
        stop(started, ask=False)


def lives(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_process_started_while_its_parent_ends_is_stopped_too(tree):
    started = tree(STARTS_ANOTHER.replace("{}", "DFL"))
    stop(started)
    assert started.members() == set() and started.returncode == 0


def test_what_does_not_listen_is_killed(tree, monkeypatch):
    monkeypatch.setattr("dance_flwr.deploy.process_tree._PATIENCE_SECONDS", 1.5)
    started = tree(STARTS_ANOTHER.replace("{}", "IGN"))
    stop(started)
    assert started.members() == set()


def test_killed_at_once_nothing_is_asked(tree):
    started = tree(STARTS_ANOTHER.replace("{}", "DFL"))
    stop(started, ask=False)
    assert started.returncode == -signal.SIGKILL and started.members() == set()


@pytest.mark.parametrize("session", ["True", "False"])
def test_a_process_without_the_mark_is_stopped_too(tree, session):
    started = tree(LEAVES_A_CHILD.replace("{}", session))
    time.sleep(0.3)
    members = started.members()
    assert len(members) == 2
    stop(started)
    assert not any(lives(member) for member in members)


def test_a_process_whose_environment_says_nothing_is_stopped_too(tree):
    """As a SuperNode, whose environment no other process may read."""
    started = tree(f"import os, sys; os.execve(sys.executable, ['python', '-c', {SLEEPS!r}], {{}})")
    assert [member.pid for member in started.members()] == [started.pid]
    stop(started)
    assert started.returncode == -signal.SIGTERM


def test_nobody_else_is_stopped(tree):
    first, second = tree(SLEEPS), tree(SLEEPS)
    stop(first)
    assert first.poll() is not None and second.poll() is None
    assert [member.pid for member in second.members()] == [second.pid]


# Killed, it cannot stop its tree, one of which has no mark and a session of its own.
IS_KILLED = """
import os, sys, time
from pathlib import Path
from dance_flwr.deploy.process_tree import ProcessTree
home, log, code = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
ProcessTree([sys.executable, "-c", code], os.environ, home, log)
time.sleep(60)
"""


def test_a_family_is_stopped_when_the_one_who_started_it_is_killed(tmp_path):
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    code = LEAVES_A_CHILD.replace("{}", "True").replace("os._exit(0)", "None")
    parent = psutil.Popen([sys.executable, "-c", IS_KILLED, home, log, code])
    deadline = time.monotonic() + 30
    while len(living := parent.children(recursive=True)) < 3 or log.read_text() != "ready\n":
        assert time.monotonic() < deadline, living
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    _, left = psutil.wait_procs(living, timeout=15)
    for process in left:
        process.kill()
    assert left == []


def test_a_stopped_family_leaves_no_keeper(tree, tmp_path):
    others = set(psutil.Process().children())  # as the keepers of engines that other tests share
    started = tree(SLEEPS)
    begun = set(psutil.Process().children()) - others
    keeper = [child for child in begun if "process_tree" in str(child.cmdline())]
    stop(started)
    assert keeper and not any(lives(process) for process in keeper)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_as_an_interrupt_and_what_is_ignored_stays_ignored(number):
    def raised():
        try:
            with stopping_in_order():
                os.kill(os.getpid(), number)
                time.sleep(0.05)
        except KeyboardInterrupt:
            return True
        return False

    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert raised() and signal.getsignal(number) == signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        assert not raised()
    finally:
        signal.signal(number, before)
