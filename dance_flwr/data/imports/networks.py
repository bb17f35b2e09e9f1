"""Which reader reads a file or folder of a network, by its name and content."""

from pathlib import Path

from dance_flwr.data.graphs.tables import ParquetTable
from dance_flwr.data.imports.gexf import read_gexf
from dance_flwr.data.imports.graphml import read_graphml
from dance_flwr.data.imports.network_json import read_network_json
from dance_flwr.data.imports.saved_datasets import is_saved
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.errors import DataError

# Since version 1.0, and before.
_NAMES = ("{}.parquet", "create_final_{}.parquet")
_FOLDERS = ("", "output", "artifacts", "output/artifacts")


def is_graphrag(folder: Path) -> bool:
    """Return whether a folder, or its `output`, holds entities and relationships of GraphRAG."""
    return _tables(folder) is not None


def read_graphrag(folder: Path) -> GraphFile:
    """Return the entities and relationships of GraphRAG; relationships name entities by title.

    The type of an entity is no label before the user asks for it, as models also make up types.
    """
    files = _tables(folder)
    if files is None:
        raise DataError(
            f"{folder}: expected entities.parquet and relationships.parquet of GraphRAG, "
            "found none; give its output folder"
        )
    nodes, edges = ParquetTable(files[0]), ParquetTable(files[1], "edges")
    # The title was the name until version 0.4.
    title = "title" if "title" in nodes.names else "name"
    roles = {"id": title, "source": "source", "target": "target"}
    roles |= {"text": "description"} if "description" in nodes.names else {}
    roles |= {name: name for name in ("description", "weight") if name in edges.names}
    # `merge_graph` of GraphRAG builds an undirected graph.
    return GraphFile("output of GraphRAG", files, nodes, edges, roles, directed=False)


def _tables(folder: Path) -> tuple[Path, Path] | None:
    for inner in _FOLDERS:
        for name in _NAMES:
            entities, relationships = (
                folder / inner / name.format(table) for table in ("entities", "relationships")
            )
            if entities.is_file() and relationships.is_file():
                return entities, relationships
    return None


_HEAD = 1 << 12  # bytes in which the first element of an XML file is expected


def read_network(path: Path, *, key: str = "", split_index: int = 0) -> GraphFile | None:
    """Return the graph in a file or folder of a network; None if it is none by name and content."""
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
