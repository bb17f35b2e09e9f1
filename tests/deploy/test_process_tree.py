"""Stopping a process stops what it started."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from support.processes import wait_until

from dance_flwr.deploy import process_tree
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.runs.processes import lives, stopping_in_order

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
        wait_until(lambda: log.read_text() == "ready\n")
        return begun[-1]

    yield begin
    for started in begun:
        stop(started)


@pytest.mark.parametrize("handler", ["DFL", "IGN"])
def test_a_tree_is_stopped_even_if_nobody_listens_and_no_other_one(tree, monkeypatch, handler):
    monkeypatch.setattr(process_tree, "_PATIENCE_SECONDS", 1.0)
    first, second = tree(handler), tree()
    members = first.members()
    assert len(members) == 2
    stop(first)
    wait_until(lambda: not any(map(lives, members)), 5)
    assert len(second.members()) == 2


# {} happens before the child asks to end with its parent.
IS_KILLED = """
import os, signal, sys, time
from pathlib import Path
from dance_flwr.deploy import process_tree
home, parent, kernel = Path(sys.argv[1]), os.getpid(), process_tree._LIBC
class Kernel:
    def prctl(self, *values):
        (home / "pid").write_text(str(os.getpid()))
        {}
        kernel.prctl(*values)
process_tree._LIBC = Kernel()
process_tree.ProcessTree(["/bin/sleep", "60"], os.environ, home, home / "log")
os.kill(parent, signal.SIGKILL)
"""
EARLY = "os.kill(parent, signal.SIGKILL)\n        while os.getppid() == parent: time.sleep(0.01)"


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux alone")
@pytest.mark.parametrize("before", ["pass", EARLY])
def test_a_process_is_stopped_when_the_one_who_started_it_is_killed(tmp_path, before):
    subprocess.run([sys.executable, "-c", IS_KILLED.replace("{}", before), tmp_path], check=False)
    with suppress(psutil.NoSuchProcess):
        child = psutil.Process(int((tmp_path / "pid").read_text()))
        assert psutil.wait_procs([child], timeout=15)[1] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_as_an_interrupt_and_what_is_ignored_stays_ignored(number):
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), stopping_in_order():
            signal.raise_signal(number)
        assert signal.signal(number, signal.SIG_IGN) == signal.SIG_DFL
        with stopping_in_order():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
