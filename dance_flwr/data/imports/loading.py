"""Graphs by name or path: built-in data sets, imported graphs, and files on disk.

Clients import this package for their own folder only, so the modules that read tables with pyarrow
are imported inside the functions that need them.
"""

from pathlib import Path

from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import DATASETS
from dance_flwr.config.sections import DataConfig
from dance_flwr.data.graphs.catalogue import CATALOGUE, graphs_folder, imported_graphs
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.errors import DataError, unknown
from dance_flwr.fingerprint import file_sha256


def load_graph(name_or_path: str | Path, root: Path | None = None) -> TextGraph:
    """Return the built-in graph of this name, else the imported one, else the graph at this path.

    A name takes precedence over a folder of the same name; `./pydocs` is always the folder. A file
    or folder of another tool is read with its usual columns; `read_graph` takes their names.

    Parameters
    ----------
    root : data root that holds the imported graphs; None for the default data root

    Raises
    ------
    DataError : neither a known name nor an existing path, or its content is invalid
    """
    from dance_flwr.data.graphs.folder import is_ours, read_folder

    if isinstance(name_or_path, Path):
        name_or_path = str(name_or_path.expanduser().absolute())  # which is no name
    if name_or_path in DATASETS:
        return DATASETS.get(name_or_path).build()  # type: ignore[no-any-return]
    path = _path(name_or_path, root)
    if is_ours(path):
        return read_folder(path)
    from dance_flwr.data.imports.importer import read_graph

    return read_graph(path)


def source_identity(name_or_path: str, root: Path | None = None) -> str:
    """Return a string that changes with a graph's content, without loading the graph.

    It consists of the hashes of files, or the package versions behind a built-in graph.
    """
    if name_or_path in DATASETS:
        return f"{name_or_path}:{DATASETS.get(name_or_path).identity()}"
    path = _path(name_or_path, root)
    if path.is_file():
        return file_sha256(path)
    from dance_flwr.data.imports.tables import files_of

    tables, _ = files_of(path)
    files = [file for file, _ in tables]
    if not {"nodes", "edges"} <= {hint for _, hint in tables}:
        # Of another tool: any of its files may be part of the graph.
        files = sorted(file for file in path.rglob("*") if file.is_file())
    return "+".join(map(file_sha256, files))


def check_source(name_or_path: str, root: Path) -> None:
    """Check that a graph of this name or path exists, or can be fetched; nothing is read."""
    if name_or_path not in DATASETS and name_or_path not in CATALOGUE:
        _path(name_or_path, root)


def absolute_source(name_or_path: str, root: Path) -> str:
    """Return a name unchanged and a path as an absolute one, valid in any working directory."""
    path = Path(name_or_path).expanduser()
    if name_or_path in DATASETS or name_or_path in imported_graphs(root) or not path.exists():
        return name_or_path
    return str(path.resolve())


def _path(name_or_path: str, root: Path | None) -> Path:
    root = data_root(DataConfig()) if root is None else root
    # `./pydocs` and `sub/pydocs` are paths and never the name of an imported graph.
    is_name = (
        bool(name_or_path) and Path(name_or_path).name == name_or_path and name_or_path[0] != "."
    )
    imported = graphs_folder(root) / name_or_path
    if is_name and imported.is_dir():
        return imported
    path = Path(name_or_path).expanduser()
    if name_or_path and path.exists():
        return path
    if name_or_path in CATALOGUE:
        raise DataError(
            f"data: expected {name_or_path!r} in {graphs_folder(root)}, found none; download it "
            f"with `dance-flwr data fetch {name_or_path}`"
        )
    known = sorted({*DATASETS, *imported_graphs(root), *CATALOGUE})
    raise DataError(
        unknown("data", [name_or_path], known, ", or the path of a folder or file with a graph")
    )
