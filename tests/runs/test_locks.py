"""How a run ends: the server writes on after its result."""

import time
from threading import Event, Thread

from dance_flwr.runs import locks
from dance_flwr.runs.locks import SERVER, exclusive


def test_the_end_of_a_run_waits_until_its_server_has_left(tmp_path):
    entered = Event()

    def serve():
        with exclusive(tmp_path, SERVER):
            entered.set()
            time.sleep(0.3)
            (tmp_path / "last").touch()

    server = Thread(target=serve)
    server.start()
    entered.wait()
    locks.wait_until_left(tmp_path)
    assert (tmp_path / "last").exists()
    server.join()


def test_it_does_not_wait_for_a_server_that_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_CLOSING_SECONDS", 0.2)
    with exclusive(tmp_path, SERVER):
        began = time.monotonic()
        locks.wait_until_left(tmp_path)
    assert time.monotonic() - began < 2
