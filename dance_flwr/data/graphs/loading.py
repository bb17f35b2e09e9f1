"""Graphs by name or folder: built-in data sets, imported graphs, and folders on disk.

Clients import this package for their own folder only, so the modules that read tables with pyarrow
are imported inside the functions that need them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import DATASETS
from dance_flwr.config.sections import DataConfig
from dance_flwr.data.graphs.catalogue import CATALOGUE, graphs_folder, recommended_settings
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.errors import DataError

__all__ = [
    "absolute_source",
    "imported_graphs",
    "load_graph",
    "recommended_settings",
    "source_identity",
]


def load_graph(
    name_or_folder: str, root: Path | None = None, *, labelled: bool = True
) -> TextGraph:
    """Return the built-in graph of this name, else the imported one, else the graph in this folder.

    A name takes precedence over a folder of the same name; `./pydocs` is always the folder.

    Parameters
    ----------
    root : data root that holds the imported graphs; None for the default data root
    labelled : whether a folder needs a column of labels

    Raises
    ------
    DataError : neither a known name nor an existing folder, or the folder's content is invalid
    """
    from dance_flwr.data.graphs.folder import read_folder

    if name_or_folder in DATASETS:
        return DATASETS.get(name_or_folder).build()  # type: ignore[no-any-return]
    return read_folder(_folder(name_or_folder, root), labelled=labelled)


def source_identity(name_or_folder: str, root: Path | None = None) -> str:
    """Return a string that changes with a graph's content, without loading the graph.

    It consists of the file hashes of a folder, or the package versions behind a built-in graph.

    Raises
    ------
    DataError : neither a known name nor an existing folder
    """
    from dance_flwr.data.graphs.folder import folder_identity

    if name_or_folder in DATASETS:
        return f"{name_or_folder}:{DATASETS.get(name_or_folder).identity()}"
    return folder_identity(_folder(name_or_folder, root))


def absolute_source(name_or_folder: str, root: Path) -> str:
    """Return a name unchanged and a folder as an absolute path, valid in any working directory."""
    path = Path(name_or_folder).expanduser()
    if name_or_folder in DATASETS or name_or_folder in imported_graphs(root) or not path.is_dir():
        return name_or_folder
    return str(path.resolve())


def imported_graphs(root: Path) -> dict[str, Path]:
    """Return name -> folder of every graph that was imported or fetched under a data root."""
    folder = graphs_folder(root)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: path for path in paths if path.is_dir() and not path.name.startswith(".")}


def _folder(name_or_folder: str, root: Path | None) -> Path:
    """Return the folder of an imported graph or the folder itself."""
    root = data_root(DataConfig()) if root is None else root
    # `./pydocs` and `sub/pydocs` are paths and never the name of an imported graph.
    is_name = (
        bool(name_or_folder)
        and Path(name_or_folder).name == name_or_folder
        and name_or_folder[0] != "."
    )
    imported = graphs_folder(root) / name_or_folder
    if is_name and imported.is_dir():
        return imported
    path = Path(name_or_folder).expanduser()
    if name_or_folder and path.is_dir():
        return path
    raise _unknown(name_or_folder, path, root)


def _unknown(name_or_folder: str, path: Path, root: Path) -> DataError:
    if name_or_folder in CATALOGUE:
        return DataError(
            f"dataset {name_or_folder!r} is not here; expected it under {graphs_folder(root)}; "
            f"download it with: dance-flwr data fetch {name_or_folder}"
        )
    known = ", ".join(sorted({*DATASETS, *imported_graphs(root), *CATALOGUE}))
    expected = f"expected one of: {known}; or the path of a folder with nodes.* and edges.*"
    if path.is_file():
        return DataError(
            f"dataset {name_or_folder!r} is a file; {expected}; "
            "`dance-flwr data import` reads files"
        )
    if any(mark in name_or_folder for mark in "/\\~") or name_or_folder.startswith("."):
        return DataError(f"dataset folder {name_or_folder!r} is missing; {expected}")
    return DataError(f"dataset {name_or_folder!r} is unknown; {expected}")


@dataclass(frozen=True)
class GraphSource:
    """A data set that is built on this machine, registered in `dance_flwr.datasets`.

    Attributes
    ----------
    build : returns the graph
    identity : returns a string that changes with the graph, without building the graph
    """

    build: Callable[[], TextGraph]
    identity: Callable[[], str]


@dataclass(frozen=True)
class BuiltIn:
    """What `data list` says of a graph that is made from installed packages, without a network.

    Attributes
    ----------
    text : content of a node's text
    licence : licence of the packages, under which the texts are
    origin : names of the packages
    """

    text: str
    licence: str = "BSD-3-Clause"
    origin: str = "installed numpy, scipy, scikit-learn, networkx"


BUILT_IN = {
    "pydocs": BuiltIn("docstring"),
    "pydocs-full": BuiltIn("docstring"),
    "pydocs-citations": BuiltIn("docstring, reference"),
    "pydocs-relations": BuiltIn(
        "docstring; relations", origin="installed scipy, scikit-learn, networkx"
    ),
    "pydocs-sites": BuiltIn(
        "docstring",
        "BSD-3-Clause; MIT (torch-geometric)",
        "installed networkx, numpy, scikit-learn, scipy, torch, torch-geometric",
    ),
}
