"""Stopping a process stops what it started."""

import os
import signal
import sys
import time

import psutil
import pytest

from dance_flwr.deploy import process_tree
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.runs.processes import stopping_in_order

# It has a child in a session of its own, as Flower's SuperLink; {} is what SIGTERM does.
STARTS_ANOTHER = """
import signal, subprocess, sys, time
child = "import time; time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_{})
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def tree(tmp_path):
    """A function that starts a tree, and waits until it listens to signals."""
    begun = []

    def begin(handler="DFL"):
        log, code = tmp_path / f"log-{len(begun)}", STARTS_ANOTHER.replace("{}", handler)
        begun.append(ProcessTree([sys.executable, "-c", code], os.environ, tmp_path, log))
        wait(lambda: log.read_text() == "ready\n")
        return begun[-1]

    yield begin
    for started in begun:
        stop(started)


def wait(done, seconds=30):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("handler", ["DFL", "IGN"])
def test_a_tree_is_stopped_even_if_nobody_listens_and_no_other_one(tree, monkeypatch, handler):
    monkeypatch.setattr(process_tree, "_PATIENCE_SECONDS", 1.0)
    first, second = tree(handler), tree()
    members = first.members()
    assert len(members) == 2
    stop(first)
    wait(lambda: not any(map(process_tree._lives, members)), 5)
    assert len(second.members()) == 2


IS_KILLED = """
import os, sys, time
from pathlib import Path
from dance_flwr.deploy.process_tree import ProcessTree
home = Path(sys.argv[1])
ProcessTree([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, home, home / "log")
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")
def test_a_process_is_stopped_when_the_one_who_started_it_is_killed(tmp_path):
    parent = psutil.Popen([sys.executable, "-c", IS_KILLED, tmp_path])
    wait(lambda: len(parent.children()) == 1)
    (child,) = parent.children()
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([child], timeout=15)[1] == []


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
