"""What a client must not do, as functions of its own folder and another client's."""

import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from support.accesses import LIST, NETWORK, START


def parquet(own, other):
    """Arrow opens the file in C++."""
    import pyarrow.parquet as pq

    assert pq.ParquetFile(f"{other}/nodes.parquet").read().num_rows


def arrow_map(own, other):
    """Arrow maps the file in C++."""
    import pyarrow as pa

    with pa.memory_map(f"{other}/nodes.parquet") as file:
        assert file.read(4) == b"PAR1"


def numpy_map(own, other):
    """NumPy opens the file in Python and maps it."""
    assert len(np.load(f"{other}/arrays/labels.npy", mmap_mode="r"))
    assert len(np.memmap(f"{other}/arrays/labels.npy", np.uint8, "r"))


def torch_map(own, other):
    """Torch opens and maps the file in C++."""
    import torch

    assert torch.from_file(f"{other}/arrays/labels.npy", size=4, dtype=torch.uint8)[1] == ord("N")


def safetensors_map(own, other):
    """Safetensors opens and maps the file in Rust, whatever is in it."""
    from safetensors import SafetensorError, safe_open

    try:
        safe_open(f"{other}/arrays/labels.npy", "np")
    except SafetensorError:
        return
    raise AssertionError("an array of NumPy is no file of safetensors")


def subprocess_cat(own, other):
    done = subprocess.run(["/bin/cat", f"{other}/client.json"], capture_output=True, check=True)
    assert done.stdout


def forked(own, other):
    """A copy of the process reads, and the parent waits for it."""
    child = os.fork()
    if not child:
        Path(f"{other}/client.json").read_bytes()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def passwords(own, other):
    assert b"root" in Path("/etc/passwd").read_bytes()


def home(own, other):
    """Neither does the file have to exist."""
    assert not (Path.home() / ".netrc-of-nobody").exists()
    with open(Path.home() / ".netrc-of-nobody", "a"):  # noqa: PTH123
        pass
    (Path.home() / ".netrc-of-nobody").unlink()


def temporary(own, other):
    with tempfile.TemporaryFile() as file:
        file.write(b"texts")


def listing(own, other):
    assert len(list(Path(own).parent.iterdir())) > 1


def dotted(own, other):
    """The path begins with the client's own folder."""
    assert Path(f"{own}/../{Path(other).name}/client.json").read_bytes()


def linked(own, other):
    """A link in the client's own folder leads out of it."""
    link = Path(own) / "link"
    link.symlink_to(other)
    try:
        assert (link / "client.json").read_bytes()
    finally:
        link.unlink()


def relative(own, other):
    """The path is relative to an open folder."""
    folder = os.open(own, os.O_RDONLY)
    file = os.open(f"../{Path(other).name}/client.json", os.O_RDONLY, dir_fd=folder)
    os.close(file)
    os.close(folder)


def connection(own, other):
    with socket.socket() as out:
        assert out.connect_ex(("127.0.0.1", 9))


def datagram(own, other):
    with socket.socket(type=socket.SOCK_DGRAM) as out:
        out.sendto(b"texts", ("127.0.0.1", 9))


def looked(own, other):
    """A size says something, too."""
    assert Path(f"{other}/nodes.parquet").stat().st_size


def parent(own, other):
    """How much memory another process has."""
    for name in ("stat", "maps"):
        assert Path(f"/proc/{os.getppid()}/{name}").read_bytes()


# Name -> what it does, and a part of the access that must be found.
LEAKS = {
    leak.__name__: (leak, trace)
    for leak, trace in (
        *((parquet, "/nodes.parquet"), (arrow_map, "/nodes.parquet"), (looked, "/nodes.parquet")),
        *((numpy_map, "/labels.npy"), (torch_map, "/labels.npy"), (safetensors_map, "/labels.npy")),
        *((dotted, "/client.json"), (linked, "/client.json"), (relative, "/client.json")),
        *((subprocess_cat, "/bin/cat"), (forked, START), (listing, LIST), (passwords, "/passwd")),
        *((home, "/.netrc-of-nobody"), (temporary, tempfile.gettempdir())),
        *((connection, NETWORK), (datagram, NETWORK), (parent, "/stat")),
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
        LEAKS[leak][0](*arguments)
        return honest(self, *rest)

    if not leak:
        yield
    else:
        with mock.patch.object(Dance, "train", leaking):
            yield
