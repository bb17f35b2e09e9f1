"""Which reader reads a file of a network, by its suffix and content."""

from pathlib import Path

from dance_flwr.data.imports.gexf import read_gexf
from dance_flwr.data.imports.graphml import read_graphml
from dance_flwr.data.imports.graphrag import is_graphrag, read_graphrag
from dance_flwr.data.imports.network_json import read_network_json
from dance_flwr.data.imports.saved_datasets import is_saved
from dance_flwr.data.imports.source import GraphFile

_HEAD = 1 << 12  # bytes in which the first element of an XML file is expected


def read_network(path: Path, *, key: str = "", split_index: int = 0) -> GraphFile | None:
    """Return the graph in a file or folder of a network; None if it is none by name and content.

    Parameters
    ----------
    key : column of the ids of a saved data set; empty for the usual one
    split_index : index of the split of a PyG file with several masks
    """
    if path.is_dir():
        return _read_folder(path, key)
    suffix = path.suffix.lower()
    if suffix in (".pt", ".pth"):
        # torch takes a second to load.
        from dance_flwr.data.imports.saved import read_pyg

        return read_pyg(path, split_index)
    if suffix == ".xml":
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        suffix = next((s for s in (".graphml", ".gexf") if b"<" + s[1:].encode() in head), "")
    readers = {
        ".graphml": read_graphml,
        ".gexf": read_gexf,
        ".json": read_network_json,
        ".cyjs": read_network_json,
    }
    return readers[suffix](path) if suffix in readers else None


def _read_folder(path: Path, key: str) -> GraphFile | None:
    if is_saved(path):
        from dance_flwr.data.imports.saved import read_saved_dataset

        return read_saved_dataset(path, key)
    return read_graphrag(path) if is_graphrag(path) else None
