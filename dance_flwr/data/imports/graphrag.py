"""The output folder of Microsoft GraphRAG: tables of entities and of relationships."""

from pathlib import Path

from dance_flwr.data.graphs.tables import ParquetTable
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
