"""Where graphs come from: built-in builders by name, or a folder on disk."""

import importlib
from collections.abc import Callable
from pathlib import Path

from dance_flwr.data.folder import folder_identity, read_folder
from dance_flwr.errors import DataError
from dance_flwr.graph import TextGraph

# name -> "module:function"; imported only when asked for, as a builder may import large packages
GRAPHS: dict[str, str] = {
    "pydocs": "dance_flwr.data.pydocs:build",
}


def load_graph(name_or_folder: str) -> TextGraph:
    """Return the built-in graph of this name, or else the graph in this folder.

    A registered name wins over a folder of the same name; write `./pydocs` to mean the folder.

    Raises
    ------
    DataError : neither a known name nor an existing folder, or the folder's content is refused
    """
    if name_or_folder in GRAPHS:
        module, _, function = GRAPHS[name_or_folder].partition(":")
        builder: Callable[[], TextGraph] = getattr(importlib.import_module(module), function)
        return builder()
    path = Path(name_or_folder).expanduser()
    if name_or_folder and path.is_dir():
        return read_folder(path)
    raise _unknown(name_or_folder, path)


def source_identity(name_or_folder: str) -> str:
    """Return what the content of a graph depends on, cheaply: file hashes of a folder, versions of a built-in.

    Raises
    ------
    DataError : neither a known name nor an existing folder
    """
    if name_or_folder in GRAPHS:
        module = importlib.import_module(GRAPHS[name_or_folder].partition(":")[0])
        return f"{name_or_folder}:{module.identity()}"
    path = Path(name_or_folder).expanduser()
    if not path.is_dir():
        raise _unknown(name_or_folder, path)
    return folder_identity(path)


def _unknown(name_or_folder: str, path: Path) -> DataError:
    known = ", ".join(sorted(GRAPHS))
    expected = f"expected one of: {known}; or the path of a folder with nodes.* and edges.*"
    if path.is_file():
        return DataError(f"dataset {name_or_folder!r} is a file; {expected}")
    if any(mark in name_or_folder for mark in "/\\~") or name_or_folder.startswith("."):
        return DataError(f"dataset folder {name_or_folder!r} is missing; {expected}")
    return DataError(f"dataset {name_or_folder!r} is unknown; {expected}")
