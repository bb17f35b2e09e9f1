"""A process per message without its imports: fork(libraries loaded once) -> `flwr-clientapp`.

Flower starts `flwr-clientapp` anew for every message, and importing torch, PyTorch Geometric and
Flower is most of a short task's time. Here one process imports them, waits at a Unix socket, and
forks for each message; the child runs Flower's own command with the arguments that Flower gave.
Nothing else is shared: the app's code is imported by the child, from the run's own bundle, and a
child's end is the end of all it knew.

    python -P warm.py serve FOLDER           forks until the process that started it has ended, then
    removes FOLDER python -I -S warm.py send FOLDER ARG...  stands in for `flwr-clientapp ARG...`

Run by path, never imported by the app: `dance_flwr` must not be loaded before the run's bundle is.
Standard library alone up to `serve`, so that `send` takes milliseconds.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

COMMAND, SOCKET = "flwr-clientapp", "socket"
# What a ClientApp imports on its way to a trained model; tests/test_warm.py compares.
LIBRARIES = (
    *(
        "numpy",
        "scipy.sparse",
        "torch",
        "torch_geometric.nn",
        "entmax",
        "safetensors.torch",
        "cryptography.fernet",
    ),
    *("flwr.app", "flwr.clientapp", "flwr.supernode.cli", "typer", "tqdm", "psutil"),
)
_LOOK_SECONDS = 0.5


def send(folder: str, arguments: Sequence[str]) -> None:
    """Hand over the arguments; where nobody listens, become Flower's own command."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(f"{folder}/{SOCKET}")
            link.sendall("\0".join([*arguments, ""]).encode())
    except OSError:
        os.execv(f"{sys.executable.rpartition('/')[0]}/{COMMAND}", [COMMAND, *arguments])


def serve(folder: str) -> None:
    """Import, then fork for each sender; in the child, run Flower's command."""
    import shutil
    import signal

    parent, own = os.getppid(), os.getpid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent's end is what counts
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{SOCKET}")
        listener.listen(64)  # whoever sends before the imports are done waits here
        command = _load()
        for arguments in _asked(listener, parent):
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.argv = [COMMAND, *arguments]
                command()
                return
    finally:
        if os.getpid() == own:
            shutil.rmtree(folder, ignore_errors=True)


def _load() -> Callable[[], None]:
    """Import all that can be shared; return Flower's command."""
    import gc
    from importlib import import_module
    from importlib.metadata import entry_points

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no thread may run where a fork is made
    for name in LIBRARIES:
        import_module(name)
    (found,) = entry_points(group="console_scripts", name=COMMAND)
    command: Callable[[], None] = found.load()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    return command


def _asked(listener: socket.socket, parent: int) -> Iterator[list[str]]:
    """Yield the arguments of each sender until `parent` has ended; collect children that have."""
    listener.settimeout(_LOOK_SECONDS)
    while os.getppid() == parent:
        try:
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
        if not rest and arguments:  # else the sender died half way
            yield arguments


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        send(sys.argv[2], sys.argv[3:])
