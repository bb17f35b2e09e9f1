"""Take the tasks of a SuperNode, and run the installed ClientApp for each in a fork.

    python -P -m dance_flwr.deploy.prefork PARENT FOLDER [ACCEPTED...]

Replaces Flower's `flower-superexec`, which starts a process for every message that imports
everything, and runs the app of the bundle that the server has sent. Here, one process imports the
libraries and the app once, asks the SuperNode for tasks at the socket in FOLDER, and forks. It
ends with the process that started it, as its forks do, and removes FOLDER.

ACCEPTED are digests of differences between a bundle and the installed app, see `deploy.bundle`.
Those that a site has accepted are read with every bundle, from the folder in $DANCE_FLWR_SITE; a
refused one waits there to be accepted.
"""

import ctypes
import gc
import logging
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NoReturn

from dance_flwr.config.paths import PROJECT
from dance_flwr.deploy.bundle import accepted_code, refusal, refuse_code
from dance_flwr.federation import flower
from dance_flwr.federation.wire import messages

LOG = logging.getLogger("flwr")
_OF_A_MESSAGE = re.compile(r"$|\[RUN |(Receiving|Sending): |(Received|Sent) successfully")
SITE = "DANCE_FLWR_SITE"
SOCKET = "supernode"  # of the SuperNode's Runtime API, in a folder of its user alone
# What a task imports late; checked by tests/deploy/test_prefork.py.
LIBRARIES = (
    "dance_flwr.federation.client.handlers",
    "dance_flwr.data.graphs.tables",
    "entmax",
    "psutil",
)
# Why (decision 29): a server may call its run's app an agent, for which Flower would start another
# program with the bundle's code. Either kind of task gets the installed ClientApp.
_TASKS = ("flwr-clientapp", "flwr-agentapp")
# A shorter interval costs a few percent of a core, a longer one delays messages.
_POLL_SECONDS = 0.25
_HOST = "supernode"  # in URLs; a Unix socket needs none
_PR_SET_DUMPABLE = 4  # of <linux/prctl.h>

App = Callable[[Any, Any], Any]  # (message, context) -> reply


class InstalledApp:
    """The installed ClientApp, instead of the one that Flower would load from a bundle.

    Parameters
    ----------
    app : the installed ClientApp
    accepted : digests of differences that the node's operator accepts
    """

    def __init__(self, app: App, accepted: Collection[str]) -> None:
        self._app, self._accepted = app, accepted
        self._refusal = "expected a bundle to compare with the installed code, found none"

    def install(self, bundle: bytes, **_: Any) -> None:
        """Compare a bundle with the installed code; nothing of it is written or imported."""
        site = Path(folder) if (folder := os.environ.get(SITE)) else None
        also = accepted_code(site) if site else ()
        self._refusal, digest = refusal(bundle, {*self._accepted, *also})
        if site and digest:
            refuse_code(site, digest, self._refusal)

    def loader(self, **_: Any) -> Callable[..., App]:
        """Return what Flower calls for the ClientApp of a bundle."""
        return lambda *_: self.answer

    def answer(self, message: Any, context: Any) -> Any:
        """Answer a message by the installed code, or refuse the bundle of its run."""
        if self._refusal:
            LOG.warning("%s", self._refusal)
            return messages.error_reply(message, self._refusal)
        return self._app(message, context)


def close_memory() -> None:
    """Keep the memory of this process and its forks from core dumps and other processes.

    Raises
    ------
    OSError : Linux does not comply
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Why (decision 29): the same user may otherwise read keys by ptrace and /proc/PID/mem. A fork
    # inherits this, a new program does not.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE, 0) failed")


def log_rounds() -> None:
    """Leave what Flower says of every message, or part of one, out of this process's log."""
    LOG.addFilter(lambda record: not _OF_A_MESSAGE.match(record.getMessage()))


def serve(parent: int, folder: Path, accepted: Collection[str]) -> None:
    """Fork for each task of the SuperNode, the process that started this one, until it exits."""
    close_memory()
    log_rounds()
    server = os.getpid()
    at_work: set[int] = set()
    # From a terminal or a service manager; the SuperNode decides when to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        app = InstalledApp(load(), accepted)
        connecting = client_class(folder / SOCKET)
        flower.replace("RuntimeHttpClient", connecting)
        flower.replace("install_from_fab", app.install)
        flower.replace("get_load_client_app_fn", app.loader)
        client = connecting(f"http://{_HOST}")
        # Another parent means that the SuperNode is gone.
        while os.getppid() == parent:
            at_work -= _ended()
            # Why (decision 10): a fork ends with its message, and what it knew ends with it.
            if token := acquire(client):
                if (child := os.fork()) == 0:
                    _run_task(token, server)
                at_work.add(child)
            time.sleep(_POLL_SECONDS)
    finally:
        # Not in a child that fails, which must leave the socket to the others.
        if os.getpid() == server:
            # Nobody takes their answers, and torch would delay the SIGINT that Flower sends them.
            for child in at_work - _ended():
                os.kill(child, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def load() -> App:
    """Import what tasks need; return the installed ClientApp."""
    for name in LIBRARIES:
        import_module(name)
    import_module("pyarrow").array([""])  # the first array imports pandas, if it is installed
    # By its file: no folder on the path, such as one that a bundle was unpacked to, can shadow it.
    spec = spec_from_file_location("client_app", PROJECT / "client_app.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy every page
    app: App = module.app
    return app


def client_class(socket: Path) -> Any:
    """Return Flower's client of the Runtime API, which connects to a Unix socket."""

    class SocketClient(flower.RuntimeHttpClient):  # type: ignore[misc]
        _client: Any

        def __init__(self, base_url: str, **options: Any) -> None:
            super().__init__(base_url, **options)
            transport = flower.httpx.HTTPTransport(uds=str(socket))
            self._client = flower.httpx.Client(transport=transport, timeout=self._client.timeout)

    return SocketClient


def acquire(client: Any) -> str:
    """Return the token of a task that waits; "" if there is none, or no SuperNode yet."""
    try:
        answer = client.AcquireTask(flower.AcquireTaskRequest(supported_task_types=_TASKS))
    except flower.httpx.TransportError:
        return ""
    token: str = answer.token
    return token


def _ended() -> set[int]:
    ended = set()
    with suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    return ended


def _run_task(token: str, server: int) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(SystemExit):  # how Flower ends a task, when its exit handlers have run
        # Dependencies that a bundle names would be other code, too.
        flower.run_clientapp(
            _HOST, token, insecure=True, parent_pid=server, runtime_dependency_install=False
        )
    sys.stdout.flush()
    # Freeing what the fork shares with its server takes longer than most tasks.
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
