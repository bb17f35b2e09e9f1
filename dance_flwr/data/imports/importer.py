"""The one way in: read a user's files in a child process, store or return their graph.

`import_graph` stores the graph under a name, whole or not at all, and `read_graph` returns it; data
frames, records and NetworkX follow the same rules.
"""

import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dance_flwr.data.graphs.catalogue import CATALOGUE, graphs_folder
from dance_flwr.data.graphs.folder import EDGES, NODES, stored_graph
from dance_flwr.data.graphs.graph import SPLIT_NAMES, TextGraph
from dance_flwr.data.imports.assemble import assemble, room_in
from dance_flwr.data.imports.child import read_in_child
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.networks import of_networkx
from dance_flwr.data.imports.options import DEFAULTS, Options
from dance_flwr.data.imports.records import flat, read_object, record_table
from dance_flwr.data.imports.report import left_out
from dance_flwr.data.imports.tables import Piece, read_pieces
from dance_flwr.data.imports.torch_files import given_data
from dance_flwr.disk import atomic_folder, write_text
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.terminal import bar

REPORT = "import.json"


def import_graph(
    paths: Sequence[Path],
    name: str,
    root: Path,
    options: Options = DEFAULTS,
    reserved: tuple[str, ...] = (),
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Store the graph in these files as `<root>/graphs/<name>` and return its report.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    name : name of the graph; under a published graph's name, the counts must be those of the paper
    reserved : names that may not be used
    extra : added to the report

    Raises
    ------
    DataError : the files are invalid, the counts are not those of the published graph of this name,
        or the name is in use; nothing is stored
    """
    check_name(name, reserved)
    target = graphs_folder(root) / name
    # Never replaced: partitions may have been made of the graph of this name.
    if target.exists():
        raise DataError(
            f"--name: expected a new name, found the graph {target}; remove it or choose another"
        )
    published = CATALOGUE.get(name)
    shares = dict(zip(SPLIT_NAMES[1:], published.split, strict=True)) if published else {}
    with room_in(target), atomic_folder(target) as draft:
        report = _read(partial(read_in_child, list(paths), name, options), draft)
        if published:
            # Inside the draft: a graph with other counts is never stored.
            published.check(report["counts"])
        report |= {
            "name": name,
            "tables": {file: file_sha256(draft / file) for file in (NODES, EDGES)},
            "split": {"official": bool(published and published.official), **shares},
            "inductive": bool(published and published.inductive),
            "licence": published.licence if published else "not known here",
            **(extra or {}),
        }
        # Readable class names; half a character in a name is escaped.
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        write_text(draft / REPORT, text.encode(errors="backslashreplace").decode())
    return report


def look_at(paths: Sequence[Path], name: str, options: Options = DEFAULTS) -> dict[str, Any]:
    """Return the report of an import without storing anything."""
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as folder:
        return _read(partial(read_in_child, list(paths), name, options), Path(folder))


def read_graph(paths: Path | str | Iterable[Path | str], **options: Any) -> TextGraph:
    """Return the graph in these files, in any format that `dance-flwr data import` reads.

    Parameters
    ----------
    paths : one folder or file, or a node table and an edge table
    options : as in `Options`: `text="title,abstract"`, `label="none"`, `dangling="drop"`, ...

    Returns
    -------
    the graph, with the name of the folder or of the first file; what is left out of its edges is a
    warning

    Raises
    ------
    DataError : the files are invalid
    UserError : an option has an unknown value
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    # Resolved, as `.` has no name.
    name = files[0].resolve().name
    return _graph_by(partial(read_in_child, files, name, Options(**options)), name)


def _graph_by(read: Callable[[Path], dict[str, Any]], name: str) -> TextGraph:
    """Return the graph whose tables a function writes into a folder, as `prepare` does."""
    with tempfile.TemporaryDirectory(prefix="dance-flwr-") as folder:
        report = _read(read, Path(folder))
        for line in left_out(report["edges_left_out"]):
            warnings.warn(f"{name}: left out: {line}", stacklevel=3)
        hashes = {file: f"sha256:{sha256}" for file, sha256 in report["files"].items()}
        return stored_graph(Path(folder), name, hashes)


def graph_of_frames(nodes: Any, edges: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_pandas`."""
    return graph_of_records(_rows(nodes), _rows(edges), name, options)


def graph_of_records(
    nodes: Iterable[Mapping[str, Any]],
    edges: Iterable[Mapping[str, Any]] | None,
    name: str,
    options: Mapping[str, Any],
) -> TextGraph:
    """Return the graph of `TextGraph.from_records`."""
    pieces = [
        Piece(what, Path(what), what, record_table(what, what, map(flat, map(dict, rows))))
        for what, rows in (("nodes", nodes), ("edges", edges))
        if rows is not None
    ]
    return _graph(read_pieces(pieces, Options(**options)), name, Options(**options))


def graph_of_network(graph: Any, name: str, options: Mapping[str, Any]) -> TextGraph:
    """Return the graph of `TextGraph.from_networkx`."""
    return _graph(of_networkx(graph, "NetworkX", "network"), name, Options(**options))


def graph_of_data(
    data: Any,
    arguments: Mapping[str, Any],
    mask_column: int | None,
    name: str,
    options: Mapping[str, Any],
) -> TextGraph:
    """Return the graph of `TextGraph.from_pyg`."""
    file = given_data(data, **arguments, mask_column=mask_column)
    of_edges = file.edges[0].names
    kept = {
        "edge_text": "append" if "edge_text" in of_edges else "",
        "edge_weight": "edge_weight" if "edge_weight" in of_edges else "",
    }
    return _graph(file, name, Options(**{"unlabelled": (), **kept, **options}))


def _rows(frame: Any) -> Any:
    """Return the rows of a frame of pandas; its index is a column without a name, or with one."""
    columns = frame.reset_index(names=[name or "" for name in frame.index.names])
    columns = columns.astype(object).where(columns.notna(), None)
    return columns.rename(columns=str).to_dict("records")


def _graph(file: GraphFile, name: str, options: Options) -> TextGraph:
    return _graph_by(
        lambda folder: {"files": {}, **assemble(file, options, folder).as_dict()}, name
    )


def _read(read: Callable[[Path], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Call a function that writes tables into a folder, and warn of what its report warns of."""
    with bar("reading"):
        report = read(folder)
    for line in report["warnings"]:
        warnings.warn(line, stacklevel=4)
    return report


def check_name(name: str, reserved: tuple[str, ...] = ()) -> str:
    """Return the name of a graph after checking that it can name a folder."""
    # Neither a separator nor a dot in front: a name must not lead out of the folder.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise DataError(
            f"--name: expected letters, digits, '.', '_' and '-', at most 64, found {name!r}; "
            "choose another name"
        )
    if name in reserved:
        raise DataError(
            f"--name: expected one that no built-in graph has, found {name!r}; choose another"
        )
    return name


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report beside an imported graph; empty for a folder without it."""
    file = folder / REPORT
    if not file.is_file():
        return {}
    return read_object(file, "the report of an import", "import the graph again")
