"""Inputs of networks and other arrays that follow from a client's data, in memory or on disk.

Arrays on disk are float16 and memory-mapped, so that a round reads its rows and nothing else.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.client_data.text_table import pool_chunks
from dance_flwr.data.text.bank_slice import META, SLICE_FILES
from dance_flwr.disk import atomic_path, mapped_array
from dance_flwr.nn.backbone import LAYER_NORM_EPS, Backbone, normalise
from dance_flwr.nn.ragged import Ragged

# Why (decision 16): a round costs what its core costs, so an array that is larger than this, in
# bytes as float32, stays on disk, and a round reads the rows that it needs.
RESIDENT_BYTES = 64 * 2**20  # on a CPU
_COLUMNS, _ROWS = 64, 65_536  # of a block, while an array is computed

Half = NDArray[np.float16]


def fits(rows: int, width: int, device: torch.device) -> bool:
    """Whether a float32 array of this shape stays in the device's memory."""
    limit = RESIDENT_BYTES
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        # Why not of what is free (decision 31): an array that is stored is float16, and a result
        # must not depend on who else is on the card. torch 2.6 cannot say which share was set.
        share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device)
        limit = int(total * share) // 8  # as several arrays stay
    return rows * width * 4 <= limit


def mapped(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares the memory of a read-only array."""
    import warnings

    # torch warns of writing to such a tensor, and nothing does.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def stored_array(
    folder: Path, name: str, key: str, shape: tuple[int, int], fill: Callable[[Half], None]
) -> Tensor:
    """Return the array `name` of a folder, memory-mapped; `fill` computes it if it is missing.

    Parameters
    ----------
    key : what the array follows from; one with another key is replaced
    shape : [rows, columns]
    fill : writes all entries
    """
    path = folder / f"{name}-{sha256(key.encode()).hexdigest()[:12]}.npy"
    if not path.is_file():
        # An array of other data is of no further use.
        for stale in folder.glob(f"{name}-????????????.npy"):
            stale.unlink()
        with atomic_path(path) as draft:
            array = np.lib.format.open_memmap(draft, mode="w+", dtype=np.float16, shape=shape)
            fill(array)
            array.flush()
    return mapped(mapped_array(path))


class StoredArrays:
    """The arrays of one client that are stored; another encoding of its texts replaces them.

    Parameters
    ----------
    client_folder : the client's folder
    folder : where the arrays are stored
    """

    def __init__(self, client_folder: Path, folder: Path) -> None:
        self.client_folder, self.folder = client_folder, folder

    def array(self, name: str, shape: tuple[int, int], fill: Callable[[Half], None]) -> Tensor:
        """Return an array of [rows, columns] as `stored_array` does."""
        return stored_array(self.folder, name, self.text_version(), shape, fill)

    def text_version(self) -> str:
        """Return a string that changes when the client's texts are encoded again."""
        folder = self.client_folder / "text"
        # The times too: other texts, encoded alike, have the same record.
        times = [(folder / file).stat().st_mtime_ns for file in SLICE_FILES]
        return (folder / META).read_text("utf-8") + repr(times)


def network_inputs(
    backbone: Backbone, texts: Tensor, graph: LocalGraph, stored: StoredArrays, name: str
) -> Tensor:
    """Return `Backbone.inputs` of every node, [n, i]; stored under `name` if it is large.

    Parameters
    ----------
    texts : [n, d] t_u
    """
    one_node = torch.zeros(1, 1, device=texts.device)  # the operator of a node without edges
    shape = len(texts), backbone.inputs(texts[:1].float(), one_node).size(1)
    if fits(*shape, graph.visible.device):
        return resident_inputs(backbone, texts, graph)
    return stored.array(name, shape, lambda out: backbone_inputs(backbone, texts, graph, out))


def pooled_texts(chunks: Tensor, chunks_of: Ragged, out: Half) -> None:
    """Write t_u of every node to `out`, [n, d], block by block (eq:text_pool)."""
    for first in range(0, chunks_of.num_rows, _ROWS):
        ptr = chunks_of.ptr[first : first + _ROWS + 1].cpu()
        block = chunks[int(ptr[0]) : int(ptr[-1])]
        out[first : first + _ROWS] = pool_chunks(block, ptr - ptr[0]).numpy()


def backbone_inputs(backbone: Backbone, texts: Tensor, graph: LocalGraph, out: Half) -> None:
    """Write `Backbone.inputs` of every node to `out`, [n, i], some columns of the texts at a time.

    Every column of the inputs follows from one column of the texts.
    """
    mean, scale = _moments(texts)
    step = graph.operator(backbone.operator)
    parts = out.reshape(len(out), -1, texts.size(1))
    # Why by columns (decision 16): a propagation step mixes rows alone, and one block is in memory.
    for first in range(0, texts.size(1), _COLUMNS):
        columns = slice(first, first + _COLUMNS)
        block = (texts[:, columns].float() - mean) * scale
        values = backbone.inputs(block.to(step.device), step)
        parts[:, :, columns] = values.view(len(out), -1, block.size(1)).cpu().numpy()


def _moments(texts: Tensor) -> tuple[Tensor, Tensor]:
    pairs = [
        torch.var_mean(block.float(), 1, correction=0, keepdim=True)
        for block in torch.split(texts, _ROWS)
    ]
    spread, mean = (torch.cat(column) for column in zip(*pairs, strict=True))
    # The eps of `layer_norm`, so that inputs on disk and in memory are the same but for float16.
    return mean, (spread + LAYER_NORM_EPS).rsqrt()


def resident_inputs(backbone: Backbone, texts: Tensor, graph: LocalGraph) -> Tensor:
    """Return `Backbone.inputs` of every node as float32 on the device; [n, i]."""
    with torch.no_grad():
        return backbone.inputs(normalise(texts.float()), graph.operator(backbone.operator))


def scratch(folder: Path, shape: tuple[int, int]) -> Tensor:
    """Return a float16 tensor in a nameless file of `folder`, which vanishes with it."""
    # In the client's folder: what follows from its texts stays there.
    with TemporaryFile(dir=folder) as file:
        return torch.from_numpy(np.memmap(file, np.float16, "w+", shape=shape))
