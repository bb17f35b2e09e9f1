"""Fork a process per message from one that has imported the libraries already.

Flower starts a new `flwr-clientapp` for every message, and importing torch, PyTorch Geometric and
Flower takes most of a short task's time. Here, one process imports them, waits at a Unix socket,
and forks for each message. The child runs Flower's own command with Flower's arguments. Nothing
else is shared: each child imports the app's code itself, from the run's own bundle, and keeps no
state after it exits.

    python -P prefork.py serve FOLDER
        fork for each sender until the parent process has exited, then remove FOLDER
    python -I -S prefork.py send FOLDER ARG...
        replaces `flwr-clientapp ARG...`

This file is run by path and never imported by the app: `dance_flwr` must not be loaded before the
run's bundle. It uses the standard library only until `serve`, so that `send` takes milliseconds.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

COMMAND, SOCKET = "flwr-clientapp", "socket"
# Libraries that a ClientApp imports for training (torch._dynamo: the first optimiser of a process
# does); checked by tests/deploy/test_prefork.py.
LIBRARIES = (
    *(
        "numpy",
        "filelock",
        "scipy.sparse",
        "torch",
        "torch._dynamo",
        "entmax",
        "safetensors.torch",
        "cryptography.fernet",
    ),
    *("flwr.app", "flwr.clientapp", "flwr.supernode.cli", "jaxtyping", "typer", "tqdm", "psutil"),
)
_POLL_SECONDS = 0.5


def send(folder: str, arguments: Sequence[str]) -> None:
    """Send the arguments; without a listener, become Flower's own command."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(f"{folder}/{SOCKET}")
            link.sendall("\0".join([*arguments, ""]).encode())
    except OSError:
        # Why (decision 10): without the process that forks, a message is slower, and not lost.
        os.execv(f"{sys.executable.rpartition('/')[0]}/{COMMAND}", [COMMAND, *arguments])


def serve(folder: str) -> None:
    """Import the libraries, then fork for each sender; the child runs Flower's command."""
    import shutil
    import signal

    parent, server = os.getppid(), os.getpid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal; the parent decides when to stop
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{SOCKET}")
        listener.listen(64)  # messages wait here until the imports are done
        command = _load()
        for arguments in _requests(listener, parent):
            # Why (decision 10): a fork ends with its message, and what it knew ends with it.
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.argv = [COMMAND, *arguments]
                command()
                return
    finally:
        # A child passes through here as well, and must leave the socket to the others.
        if os.getpid() == server:
            shutil.rmtree(folder, ignore_errors=True)


def _load() -> Callable[[], None]:
    """Import the shared libraries; return Flower's command."""
    import gc
    from importlib import import_module
    from importlib.metadata import entry_points

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not fork
    for name in LIBRARIES:
        import_module(name)
    # Flower documents the command's name and entry point; nothing else is relied on.
    (entry_point,) = entry_points(group="console_scripts", name=COMMAND)
    command: Callable[[], None] = entry_point.load()
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy every page
    return command


def _requests(listener: socket.socket, parent: int) -> Iterator[list[str]]:
    """Yield the arguments of each sender until `parent` has exited; reap exited children."""
    listener.settimeout(_POLL_SECONDS)
    # Another parent means that the SuperNode is gone.
    while os.getppid() == parent:
        try:
            # Ended children are reaped here, or they would stay as zombies.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        try:
            link, _ = listener.accept()
        except TimeoutError:
            continue
        with link, link.makefile("rb") as file:
            *arguments, rest = file.read().decode().split("\0")
        if not rest and arguments:  # else the sender died before the end
            yield arguments


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        send(sys.argv[2], sys.argv[3:])
