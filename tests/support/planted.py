"""What a client must not do, as functions of its own folder and another client's."""

import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np

from support.accesses import LIST, NETWORK, START

LABELS, TABLE, CARD = "arrays/labels.npy", "nodes.parquet", "client.json"


def parquet(own, other):
    """Arrow opens the file in C++."""
    import pyarrow.parquet as pq

    pq.ParquetFile(other / TABLE).read()


def arrow_map(own, other):
    """Arrow maps the file in C++."""
    import pyarrow as pa

    pa.memory_map(str(other / TABLE)).close()


def numpy_map(own, other):
    """NumPy opens the file in Python and maps it."""
    np.load(other / LABELS, mmap_mode="r")
    np.memmap(other / LABELS, np.uint8, "r")


def torch_map(own, other):
    """Torch opens and maps the file in C++."""
    import torch

    torch.from_file(str(other / LABELS), size=4, dtype=torch.uint8)


def safetensors_map(own, other):
    """Safetensors opens and maps the file in Rust, whatever is in it."""
    from safetensors import SafetensorError, safe_open

    with suppress(SafetensorError):
        safe_open(other / LABELS, "np")


def subprocess_cat(own, other):
    subprocess.run(["/bin/cat", other / CARD], capture_output=True, check=True)


def forked(own, other):
    """A copy of the process reads, and the parent waits for it."""
    child = os.fork()
    if not child:
        (other / CARD).read_bytes()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def home(own, other):
    """Neither does the file have to exist."""
    path = Path.home() / ".netrc-of-nobody"
    with open(path, "x"):  # noqa: PTH123
        pass
    path.unlink()


def temporary(own, other):
    with tempfile.TemporaryFile() as file:
        file.write(b"texts")


def linked(own, other):
    """A link in the client's own folder leads out of it."""
    link = own / "link"
    link.symlink_to(other)
    try:
        (link / CARD).read_bytes()
    finally:
        link.unlink()


def relative(own, other):
    """The path is relative to an open folder."""
    folder = os.open(own, os.O_RDONLY)
    os.close(os.open(f"../{other.name}/{CARD}", os.O_RDONLY, dir_fd=folder))
    os.close(folder)


def connection(own, other):
    with socket.socket() as out:
        assert out.connect_ex(("127.0.0.1", 9))


def datagram(own, other):
    with socket.socket(type=socket.SOCK_DGRAM) as out:
        out.sendto(b"texts", ("127.0.0.1", 9))


def parent(own, other):
    """How much memory another process has."""
    for name in ("stat", "maps"):
        Path(f"/proc/{os.getppid()}/{name}").read_bytes()


# Name -> what it does, and a part of the access that must be found.
LEAKS = {
    "dotted": (lambda own, other: (own / ".." / other.name / CARD).read_bytes(), f"/{CARD}"),
    "listing": (lambda own, other: list(own.parent.iterdir()), LIST),
    "looked": (lambda own, other: (other / TABLE).stat(), f"/{TABLE}"),  # a size says something
    "passwords": (lambda own, other: Path("/etc/passwd").read_bytes(), "/passwd"),
}
LEAKS |= {
    leak.__name__: (leak, trace)
    for leak, trace in (
        *((parquet, f"/{TABLE}"), (arrow_map, f"/{TABLE}"), (numpy_map, "/labels.npy")),
        *((torch_map, "/labels.npy"), (safetensors_map, "/labels.npy"), (linked, f"/{CARD}")),
        *((relative, f"/{CARD}"), (subprocess_cat, "/bin/cat"), (forked, START), (parent, "/stat")),
        *((home, "/.netrc-of-nobody"), (temporary, tempfile.gettempdir())),
        *((connection, NETWORK), (datagram, NETWORK)),
    )
}
# What happens below Python or asks no hook, so that only the kernel sees it.
BELOW_PYTHON = ("parquet", "arrow_map", "torch_map", "safetensors_map", "looked")


@contextmanager
def in_training(leak, arguments):
    """Let a client of `dance` do this leak whenever it trains; "" = no leak."""
    from dance_flwr.methods.dance.client import Dance

    honest = Dance.train

    def leaking(self, *rest):
        if leak:
            LEAKS[leak][0](*map(Path, arguments))
        return honest(self, *rest)

    with mock.patch.object(Dance, "train", leaking):
        yield
