"""From the tables of a file to nodes and edges: columns are chosen and the rules applied."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import EdgeList
from dance_flwr.data.graphs.tables import join
from dance_flwr.data.imports.imported import COLUMNS, Incoming
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.report import ImportReport, is_empty
from dance_flwr.data.imports.roles import (
    EdgeRoles,
    Header,
    NodeRoles,
    edge_roles,
    node_roles,
    plain_name,
    refuse_lacking,
)
from dance_flwr.data.imports.source import Columns, GraphFile
from dance_flwr.errors import DataError
from dance_flwr.terminal import bar

_EXAMPLES = 3
# LightRAG joins the descriptions of a node or an edge with it.
_SENTENCE_BREAK = "<SEP>"


def assemble(source: GraphFile, options: Options) -> Incoming:
    """Return nodes and edges of a file in batches, and the report that their reading fills."""
    nodes, edges = source.nodes, source.edges
    # Before any row is read.
    headers = Header(nodes.names, nodes.where), Header(edges.names, edges.where)
    node_columns = node_roles(headers[0], source.roles, options)
    edge_columns = edge_roles(headers[1], source.roles, options)
    refuse_lacking(*headers)
    report = ImportReport(dict(source.facts), directed=source.directed)
    _report_columns(report, source, node_columns, edge_columns, options)
    columns = (*COLUMNS, "site") if node_columns.site else COLUMNS
    # Of another column than the file's own, its classes say nothing.
    is_declared = node_columns.label == source.roles.get("label", "label")
    return Incoming(
        source.kind,
        source.files,
        _rows(nodes, node_columns, options, columns),
        lambda ids: _edges(edges, edge_columns, options, report, (ids, nodes.where)),
        source.classes if is_declared else (),
        columns,
        report,
    )


def _report_columns(
    report: ImportReport, source: GraphFile, nodes: NodeRoles, edges: EdgeRoles, options: Options
) -> None:
    """Write into the report which columns are used, and which are not."""
    used = {"id": [nodes.id], "text": list(nodes.text), "label": [nodes.label]}
    used |= {"split": [nodes.split], "site": [nodes.site]}
    of_edges = {"source": [edges.source], "target": [edges.target]}
    if options.edge_text:
        of_edges |= {"relation": [edges.relation], "description": [edges.description]}
    if options.edge_weight:
        of_edges["weight"] = [edges.weight]
    report.columns = {role: names for role, names in {**used, **of_edges}.items() if any(names)}
    for table, columns, roles in (
        ("nodes", source.nodes, used),
        ("edges", source.edges, of_edges),
    ):
        names = {name for role in roles.values() for name in role}
        report.columns_left_out[table] = [n for n in columns.names if n not in names]
    if nodes.text == ("Label",) and not options.text:
        report.warnings.append(
            f"{source.kind}: no column of texts; the names in 'Label' are the texts (--text names "
            "another column)"
        )


def _rows(
    nodes: Columns, roles: NodeRoles, options: Options, columns: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the batches of `columns`; a role without a column is "" in every row."""
    # Each column once: --text may name that of the labels, too.
    used = dict.fromkeys(
        filter(None, [roles.id, *roles.text, roles.label, roles.split, roles.site])
    )
    for batch in nodes.batches(list(used)):
        empty = pa.repeat(pa.scalar("", pa.large_string()), len(batch[roles.id]))
        texts = [_texts(batch[name], name) for name in roles.text]
        row = {"id": batch[roles.id], "text": _join_texts(texts)}
        row |= {
            role: batch[name] if (name := getattr(roles, role)) else empty
            for role in ("label", "split", "site")
        }
        row["label"] = _without_missing(row["label"], options.unlabelled)
        if "[]" in roles.label or ":LABEL" in roles.label or roles.label == "~label":
            _check_single(row["label"], roles.label, nodes.where)
        yield {name: row[name] for name in columns}


def _without_missing(labels: Any, unlabelled: Sequence[str]) -> Any:
    """Return labels with "" for those that mean "no label", case and surrounding space aside."""
    words = {value.strip().casefold() for value in unlabelled}
    missing = [name for name in pc.unique(labels).to_pylist() if name.strip().casefold() in words]
    if not missing:
        return labels
    is_missing = pc.is_in(labels, value_set=pa.array(missing, labels.type))
    return pc.if_else(is_missing, pa.scalar("", labels.type), labels)


def _check_single(labels: Any, column: str, where: str) -> None:
    """Check labels of Neo4j and Neptune, which separate several by semicolons."""
    several = pc.index(pc.match_substring(labels, ";"), True).as_py()
    if several >= 0:
        raise DataError(
            f"{where}: expected one label per node in {column!r}, found "
            f"{labels[several].as_py()!r}; keep one, or name another column with --label"
        )


def _texts(values: Any, column: str) -> Any:
    """Return texts with a line break where LightRAG joined two descriptions."""
    is_description = plain_name(column) == "description"
    return pc.replace_substring(values, _SENTENCE_BREAK, "\n") if is_description else values


def _join_texts(texts: list[Any]) -> Any:
    return (
        texts[0]
        if len(texts) == 1
        else pc.binary_join_element_wise(*texts, pa.scalar("\n", pa.large_string()))
    )


def _edges(
    table: Columns,
    roles: EdgeRoles,
    options: Options,
    report: ImportReport,
    nodes: tuple[Any, str],
) -> EdgeList:
    """Read a table of edges, and count what of it is left out."""
    extras = ("relation", "description", "weight")
    columns = {role: name for role in extras if (name := getattr(roles, role))}
    used = {"weight"} if options.edge_weight else set()
    used |= {"relation", "description"} if options.edge_text else set()
    parts: dict[str, list[Any]] = {
        role: [] for role in ("source", "target", *used) if role not in extras or role in columns
    }
    names = {"source": roles.source, "target": roles.target, **columns}
    report.edges_left_out = {role: 0 for role in columns if role not in used}
    with bar("edges", unit="read") as shown:
        for batch in table.batches(list(dict.fromkeys(names.values()))):
            for role, name in names.items():
                if role in parts:
                    parts[role].append(batch[name])
                else:
                    values = pc.sum(pc.invert(is_empty(batch[name]))).as_py() or 0
                    report.edges_left_out[role] += values
            shown.move(shown.done + len(batch[roles.source]))
    values = {role: join(arrays) for role, arrays in parts.items()}
    rows, dangling = _ends(values, nodes, table.where, options)
    if dangling is not None:
        report.counts["dangling"] = int(dangling.sum())
        keep = pa.array(~dangling)
        values = {role: pc.filter(array, keep) for role, array in values.items()}
    weight = _weights(values["weight"], roles.weight, table.where) if "weight" in values else None
    text = _edge_texts(values) if options.edge_text else None
    return EdgeList(*rows, weight, text)


def _ends(
    values: dict[str, Any], nodes: tuple[Any, str], where: str, options: Options
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_] | None]:
    """Return the rows of both ends of each edge, and which edges were dropped, None if none."""
    ids, ids_where = nodes
    codes = {end: pc.index_in(values[end], value_set=ids) for end in ("source", "target")}
    missing = {end: pc.is_null(rows).to_numpy(zero_copy_only=False) for end, rows in codes.items()}
    dangling = missing["source"] | missing["target"]
    if dangling.any() and options.dangling != "drop":
        examples = []
        for row in np.flatnonzero(dangling)[:_EXAMPLES].tolist():
            end = "source" if missing["source"][row] else "target"
            examples.append(f"row {row + 1} {end} {values[end][row].as_py()!r}")
        number = int(dangling.sum())
        raise DataError(
            f"{where}: expected ids of {ids_where} at both ends of every edge, found "
            f"{number:,} {'edge' if number == 1 else 'edges'} with another: {', '.join(examples)}"
            f"{', ...' if number > len(examples) else ''}; correct them, or give --dangling drop"
        )
    source, target = (
        pc.fill_null(rows, 0).to_numpy(zero_copy_only=False).astype(np.int64)[~dangling]
        for rows in codes.values()
    )
    return (source, target), dangling if dangling.any() else None


def _weights(values: Any, column: str, where: str) -> NDArray[np.float32]:
    """Return the weights of edges, finite and not negative."""
    weights = np.empty(len(values), np.float32)
    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(values), pa.float32())
        weights[:] = numbers.to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        # Row by row, to find the first that is none.
        weights[:] = [_number(value) for value in values.to_pylist()]
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where} row {row + 1}: expected a number of at least 0 in {column!r}, found "
            f"{values[row].as_py()!r}; correct it, or leave --edge-weight out"
        )
    return weights


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _edge_texts(values: dict[str, Any]) -> list[str]:
    """Return "relation: description" of each edge, or the one of both that it has."""
    size = len(values["source"])
    relations, descriptions = (
        values[role].to_pylist() if role in values else [""] * size
        for role in ("relation", "description")
    )
    return [
        ": ".join(part.strip() for part in pair if part.strip()).replace(_SENTENCE_BREAK, "\n")
        for pair in zip(relations, descriptions, strict=True)
    ]
