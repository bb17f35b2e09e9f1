"""From the tables of files to a checked graph: columns are chosen, rules applied, rows counted."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dance_flwr.data.graphs.folder import CLASSES_KEY, EDGES, NODES, check_ids, write_edges
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.graphs.pyg import in_both_directions
from dance_flwr.data.graphs.tables import Table, join
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, GraphFile
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import fault
from dance_flwr.data.imports.report import ImportReport, count_edges, count_nodes, is_empty
from dance_flwr.data.imports.roles import Chosen, choose, find, plain_name
from dance_flwr.errors import TOO_MANY

# Readers take a row group at a time.
_ROW_GROUP = 8 << 20  # bytes
_EXAMPLES = 3
_CHUNK = 1 << 22  # edges whose ends are looked up at once
# LightRAG joins the descriptions of a node or an edge with it.
_SENTENCE_BREAK = "<SEP>"
_CONTENTS = ("relation", "description", "weight")  # of edges, which an option asks for
# In which two ids may differ and still mean the same node, if they match only one.
_LOOSE: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("'.0'", lambda ids: pc.replace_substring_regex(ids, r"^(-?\d+)\.0+$", r"\1")),
    ("Unicode form", lambda ids: pc.utf8_normalize(ids, form="NFC")),
    ("surrounding space", pc.utf8_trim_whitespace),
    ("case", pc.utf8_lower),
)


def assemble(source: GraphFile, options: Options, out: Path) -> ImportReport:
    """Write the graph of a file into a folder, as `stored_graph` reads it."""
    of_nodes, of_edges = choose(source, options)  # before any row is read
    asked = {"relation": options.edge_text, "description": options.edge_text}
    asked["weight"] = options.edge_weight
    used = [{r: c for r, c in of.items() if asked.get(r, "ends")} for of in of_edges]
    report = ImportReport(facts=dict(source.facts), directed=source.directed)
    report.account_columns(source, of_nodes, used)
    if report.columns["text"] in (["Label"], ["title"]) and not options.text:
        report.warnings.append(
            f"{source.kind}: no column of texts; the names in {report.columns['text'][0]!r} are "
            "the texts (--text names another column)"
        )
    nodes, ids = _nodes(source, of_nodes, options, report)
    with room_in(out.parent):
        _write_nodes(nodes, report.classes, out / NODES)
    names = nodes["id"].combine_chunks().cast(pa.string())
    del nodes
    lost = {role for of in of_edges for role in of if not asked.get(role, "ends")}
    report.edges_left_out = {role: 0 for role in _CONTENTS if role in lost}
    edges = _edges(source, of_edges, options, report, ids)
    pa.default_memory_pool().release_unused()  # the C library keeps what is freed
    pairs = count_edges(report, *(edges[end].to_numpy() for end in ENDS[0]))
    with room_in(out.parent):
        if edges.num_columns > 2:
            _write_edge_rows(edges, names, out / EDGES, both_ways=source.both_ways)
        else:
            del edges
            write_edges(out / EDGES, names, pairs // len(names), pairs % len(names))
    return report


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Turn an error of the disk inside the block into one line about a folder."""
    try:
        yield
    except OSError as error:
        if error.errno in TOO_MANY:
            raise  # no fault of the folder
        advice = (
            "free some space, choose another data root (TMPDIR for temporary files) or change its "
            "owner (chown)"
        )
        # Not Arrow's own words around those of the system.
        found = os.strerror(error.errno) if error.errno else error
        raise fault(folder, "a writable folder with room", found, advice) from error


def _write_nodes(nodes: Any, classes: list[str], file: Path) -> None:
    """Write a table of nodes in row groups; a missing label or split is null."""
    names = nodes.column_names
    schema = pa.schema([(name, pa.string()) for name in names])
    schema = schema.with_metadata({CLASSES_KEY: json.dumps(sorted(classes)).encode()})
    # Texts rarely repeat, so a dictionary of them would only be a second copy.
    dictionaries = ["label", *names[4:]]
    rows = max(1, len(nodes) * _ROW_GROUP // nodes.nbytes)
    with pq.ParquetWriter(file, schema, use_dictionary=dictionaries) as writer:
        for start in range(0, len(nodes), rows):
            part = nodes.slice(start, rows)
            for name in ("label", "split"):
                values = pc.if_else(pc.equal(part[name], ""), None, part[name])
                part = part.set_column(names.index(name), name, values)
            writer.write_table(part.cast(schema))


def _write_edge_rows(edges: Any, ids: Any, file: Path, *, both_ways: bool) -> None:
    """Write edges with texts or weights, each row of the file as it stands.

    Parameters
    ----------
    both_ways : whether a row in each direction is one edge, if all are there alike
    """
    edges = edges.filter(pc.not_equal(edges["source"], edges["target"]))
    if both_ways:
        given = {name: edges[name].to_numpy() for name in edges.column_names}
        ends = given["source"], given["target"]
        if in_both_directions(*ends, given.get("weight"), given.get("text")):
            edges = edges.filter(pc.less(edges["source"], edges["target"]))
    columns = {end: pc.take(ids, edges[end]) for end in ENDS[0]}
    if "text" in edges.column_names:
        texts = pc.if_else(pc.equal(edges["text"], ""), None, edges["text"])
        columns["text"] = texts.cast(pa.string())
    if "weight" in edges.column_names:
        columns["weight"] = edges["weight"]
    pq.write_table(pa.table(columns), file)


def _nodes(
    source: GraphFile, roles: Sequence[Chosen], options: Options, report: ImportReport
) -> tuple[Any, "_Ids"]:
    """Return the table of nodes, without those that the options drop, and their ids."""
    optional = TextGraph.columns(plain=True)
    columns = [
        role
        for role in TextGraph.columns()
        if role not in optional or any(role in of for of in roles)
    ]
    schema = pa.schema([(name, pa.large_string()) for name in columns])
    where = ", ".join(table.where for table in source.nodes)
    batches = []
    for table, of in zip(source.nodes, roles, strict=True):
        for row in _rows(table, of, options):
            batches.append(pa.record_batch({name: row[name] for name in columns}, schema))
            report.account(table.where, "nodes")["rows"] += len(batches[-1])
    # Of another column than the file's own, its classes say nothing.
    own = [
        find(table, "label", "label" * ("label" not in source.roles), source.roles)
        for table in source.nodes
    ]
    if [of.get("label", []) for of in roles] == own:
        report.classes = sorted(set(source.classes))
    nodes = pa.Table.from_batches(batches, schema)
    del batches
    rows, places = len(nodes), np.arange(len(nodes))
    if options.nameless == "drop":
        named = pc.invert(is_empty(nodes["id"]))
        nodes, places = nodes.filter(named), places[named.to_numpy()]
    report.counts["nameless_nodes"] = rows - len(nodes)
    rows_of, before = np.arange(len(nodes)), len(nodes)
    if options.duplicates != "refuse" and before:
        nodes, rows_of = _without_duplicates(nodes, options.duplicates, where)
    report.counts["duplicate_nodes"] = before - len(nodes)
    names = check_ids(nodes["id"].combine_chunks(), where)
    if options.labels:
        nodes = _relabelled(nodes, options.labels, _Ids(names, where, report))
    count_nodes(report, nodes, where)
    if not source.by_place:
        return nodes, _Ids(names, where, report)
    return nodes, _Ids(pa.array(places).cast(pa.large_string()), where, report, rows_of)


def _without_duplicates(nodes: Any, rule: str, where: str) -> tuple[Any, NDArray[np.int64]]:
    """Return nodes with distinct ids, and the new row of every old one."""
    ids = nodes["id"].combine_chunks()
    rows_of = pc.index_in(ids, value_set=pc.unique(ids)).to_numpy().astype(np.int64)
    first = np.unique(rows_of, return_index=True)[1]
    kept = nodes.take(pa.array(first))
    if rule == "first" or len(first) == len(ids):
        return kept, rows_of
    is_repeated = np.bincount(rows_of) > 1
    repeated = nodes.filter(pa.array(is_repeated[rows_of])).to_pylist()
    for place, name in enumerate(nodes.column_names[1:], 1):
        merged: dict[str, dict[str, None]] = {}  # in the order of their first rows
        for row in repeated:
            found = merged.setdefault(row["id"], {})
            found |= {row[name]: None} if row[name].strip() else {}
            if len(found) > 1 and name != "text":
                what = f"one {name} in all rows of the id {row['id']!r}"
                advice = "correct one, or give --duplicates first"
                raise fault(where, what, " and ".join(map(repr, found)), advice)
        texts = ["\n".join(found) for found in merged.values()]
        new = pa.array(is_repeated), pa.array(texts, pa.large_string())
        column = pc.replace_with_mask(kept[name].combine_chunks(), *new)
        kept = kept.set_column(place, name, column)
    return kept, rows_of


def _relabelled(nodes: Any, labels: Mapping[str, str], ids: "_Ids") -> Any:
    """Return nodes with these classes, by id, in place of their labels, and count them."""
    rows = ids.rows(pa.array(labels, pa.large_string()), "verdict")
    before = nodes["label"].to_pylist()
    after, known = list(before), {*before, *ids.report.classes} - {""}
    counts = dict.fromkeys(("labels_corrected", "labels_added", "labels_confirmed"), 0)
    for (node, name), row in zip(labels.items(), rows.tolist(), strict=True):
        if row < 0 or (known and name not in known):
            what = f"the {'class' if row >= 0 else 'id'} of a node in {ids.where}"
            found = repr(name if row >= 0 else node)
            raise fault("--labels-from", what, found, "take verdicts on this graph")
        same = before[row] == name
        word = "confirmed" if same else "corrected" if before[row] else "added"
        counts[f"labels_{word}"] += 1
        after[row] = name
    ids.report.counts |= counts
    place = nodes.column_names.index("label")
    return nodes.set_column(place, "label", pa.array(after, pa.large_string()))


def _rows(nodes: Table, roles: Chosen, options: Options) -> Iterator[dict[str, Any]]:
    """Yield batches of the columns of a node table; one that the table lacks is ""."""
    # Each column once: --text may name that of the labels, too.
    for batch in nodes.batches(list(dict.fromkeys(name for of in roles.values() for name in of))):
        empty = pa.repeat(pa.scalar("", pa.large_string()), len(batch[roles["id"][0]]))
        row = {
            role: batch[roles[role][0]] if role in roles else empty for role in TextGraph.columns()
        }
        texts = [
            _without(_texts(batch[name], name), options.missing) for name in roles.get("text", ())
        ]
        if len(texts) > 1 and not options.text:  # of several that are declared, those with words
            texts = [pc.if_else(is_empty(text), None, text) for text in texts]
            # One of each is kept: Arrow leaves out rows in which all are null.
            texts[0] = pc.if_else(pc.is_null(pc.coalesce(*texts)), "", texts[0])
        glue = pa.scalar("\n", pa.large_string())
        if texts:
            row["text"] = pc.binary_join_element_wise(*texts, glue, null_handling="skip")
        row["label"] = _without(row["label"], (*options.unlabelled, *options.missing))
        column = roles.get("label", [""])[0]
        if mark := next((m for n, m in LAYOUTS["label-marks"].items() if column.endswith(n)), ""):
            row["label"] = _single(row["label"], mark, column, nodes.where)
        yield row


def _without(values: Any, missing: Sequence[str]) -> Any:
    """Return values with "" for those that mean "none", case and surrounding space aside."""
    words = {value.strip().casefold() for value in missing}
    longest = max((len(word.encode()) for word in words), default=-1)
    short = values.filter(pc.less_equal(pc.binary_length(pc.utf8_trim_whitespace(values)), longest))
    found = [name for name in pc.unique(short).to_pylist() if name.strip().casefold() in words]
    is_missing = pc.is_in(values, value_set=pa.array(found, values.type))
    return pc.if_else(is_missing, pa.scalar("", values.type), values) if found else values


def _single(labels: Any, mark: str, column: str, where: str) -> Any:
    """Return labels of a tool that separates several by a mark, of which each must be one."""
    labels = pc.utf8_trim(labels, mark)
    several = pc.index(pc.match_substring(labels, mark), True).as_py()
    if several >= 0:
        advice = "keep one, or name another column with --label"
        found = repr(labels[several].as_py())
        raise fault(where, f"one label per node in {column!r}", found, advice)
    return labels


def _texts(values: Any, column: str) -> Any:
    """Return texts with a line break where LightRAG joined two descriptions."""
    is_description = plain_name(column) == "description"
    return pc.replace_substring(values, _SENTENCE_BREAK, "\n") if is_description else values


class _Ids:
    """The ids of the nodes, looked up as they stand, and then more loosely.

    Parameters
    ----------
    rows_of : the row of the node of each id; None for that of the id
    """

    def __init__(
        self, ids: Any, where: str, report: ImportReport, rows_of: NDArray[np.int64] | None = None
    ) -> None:
        self.where, self._ids, self.report, self._rows_of = where, ids, report, rows_of

    def rows(self, values: Any, end: str) -> NDArray[np.int64]:
        """Return the row of the node of each id, [m] int64; -1 for an unknown one."""
        codes = _places(values, self._ids)
        unknown = np.flatnonzero(codes < 0)
        found = values.take(pa.array(unknown))
        for (what, change), (keys, rows) in (
            zip(_LOOSE, self._levels, strict=True) if len(unknown) else ()
        ):
            found = change(found)
            places = _places(found, keys)
            hit = places >= 0
            if hit.any():
                codes[unknown[hit]] = rows[places[hit]]
                first = int(unknown[hit][0])
                example = values[first].as_py(), self._ids[int(codes[first])].as_py()
                self.report.matched(what, end, int(hit.sum()), example)
                unknown, found = unknown[~hit], found.filter(pa.array(~hit))
        if self._rows_of is not None:
            codes[codes >= 0] = self._rows_of[codes[codes >= 0]]
        return codes

    def has_all(self, values: Sequence[str]) -> bool:
        """Return whether all of these are ids, as they stand."""
        return bool((_places(pa.array(values, self._ids.type), self._ids) >= 0).all())

    @cached_property
    def _levels(self) -> list[tuple[Any, NDArray[np.int64]]]:
        """The ids that stay unique at each level of `_LOOSE`, and their rows."""
        keys, levels = self._ids, []
        for _, change in _LOOSE:
            keys = change(keys)
            counts = pc.value_counts(keys)
            unique = counts.field(0).filter(pc.equal(counts.field(1), 1))
            levels.append((unique, _places(unique, keys)))
        return levels


def _places(values: Any, among: Any) -> NDArray[np.int64]:
    """Return the place of each value among others, [m] int64; -1 if it is none of them."""
    places = pc.fill_null(pc.index_in(values, value_set=among), -1)
    return places.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _edges(
    source: GraphFile, roles: Sequence[Chosen], options: Options, report: ImportReport, ids: _Ids
) -> Any:
    """Read the tables of edges, and count what of them is left out."""
    kinds = dict.fromkeys(ENDS[0], pa.int32() if report.counts["nodes"] < 1 << 31 else pa.int64())
    kinds |= {"text": pa.large_string()} if options.edge_text else {}
    kinds |= {"weight": pa.float32()} if options.edge_weight else {}
    parts = [pa.schema(kinds).empty_table()]
    nameless = dangling = read = 0
    examples: list[str] = []
    for table, of in zip(source.edges, roles, strict=True):
        before = read
        columns = {role: names[0] for role, names in of.items()}
        if "delimiter" in table.facts and options.source and options.target:
            _check_header(table.where, [columns[end] for end in ENDS[0]], ids)
        for batch in _chunks(table.batches(list(dict.fromkeys(columns.values())))):
            values = {role: batch[name] for role, name in columns.items()}
            for role in report.edges_left_out.keys() & values.keys():
                number = pc.sum(pc.invert(is_empty(values[role]))).as_py() or 0
                report.edges_left_out[role] += number
            ends = {end: ids.rows(values[end], end) for end in ENDS[0]}
            keep = (ends["source"] >= 0) & (ends["target"] >= 0)
            unknown = ~keep
            if options.nameless == "drop" and unknown.any():
                empty = [is_empty(values[end]).to_numpy(zero_copy_only=False) for end in ends]
                unknown &= ~(empty[0] | empty[1])
            for row in np.flatnonzero(unknown)[: _EXAMPLES - len(examples)].tolist():
                end = "source" if ends["source"][row] < 0 else "target"
                place = f"row {read - before + row + 1}"
                examples.append(f"{place} {end} {values[end][row].as_py()!r}")
            kept: dict[str, Any] = dict(ends)
            if options.edge_text:
                kept["text"] = _edge_texts(values, len(keep))
            if options.edge_weight:
                kept["weight"] = _weights(values, columns, table.where, read - before)
            parts.append(pa.table(kept).filter(pa.array(keep)).cast(parts[0].schema))
            read, dangling = read + len(keep), dangling + int(unknown.sum())
            nameless += int((~keep).sum() - unknown.sum())
        report.account(table.where, "edges")["rows"] += read - before
    report.counts |= {"edge_rows": read, "nameless_edges": nameless, "dangling": dangling}
    if dangling:
        where = ", ".join(table.where for table in source.edges)
        _check_dangling(dangling, read - nameless, examples, options.dangling, (where, ids.where))
    return pa.concat_tables(parts)


def _check_header(where: str, names: list[str], ids: _Ids) -> None:
    """Refuse a first edge that is named as the header."""
    if ids.has_all(names):
        advice = "give --no-header, without --source and --target, or rename the columns"
        found = f"the ids of nodes {' and '.join(map(repr, names))}"
        raise fault(where, "names of columns in the first row", found, advice)


def _chunks(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches joined to `_CHUNK` rows: every look-up makes a table of all ids."""
    pending: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += max(map(len, batch.values()), default=0)
        if size >= _CHUNK:
            yield {name: join([part[name] for part in pending]) for name in batch}
            pending, size = [], 0
    if pending:
        yield {name: join([part[name] for part in pending]) for name in pending[0]}


def _check_dangling(
    number: int, total: int, examples: list[str], rule: str, where: tuple[str, str]
) -> None:
    """Refuse edges that name an unknown node, unless the rule allows so many."""
    allowed = int(rule) if rule.isdecimal() else total // 2 if rule == "drop" else 0
    if number <= allowed:
        return
    more = ", ..." if number > len(examples) else ""
    found = f"{number:,} {'edge' if number == 1 else 'edges'} with another: {', '.join(examples)}"
    advice = "correct them, or give --dangling drop"
    if 2 * number > total:
        advice = (
            f"these are {number:,} of {total:,} edges, so check --id, --source and --target; "
            f"--dangling {number} drops them"
        )
    raise fault(where[0], f"ids of {where[1]} at both ends of every edge", found + more, advice)


def _weights(
    values: Mapping[str, Any], columns: Mapping[str, str], where: str, before: int
) -> NDArray[np.float32]:
    """Return the weights of edges, finite and not negative; 1 in a table without weights."""
    if "weight" not in values:
        return np.ones(len(values["source"]), np.float32)
    given = values["weight"]
    weights = np.full(len(given), np.nan, np.float32)
    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(given), pa.float32())
        weights[:] = numbers.to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        for row, text in enumerate(given.to_pylist()):  # to find the first that is none
            with suppress(ValueError):
                weights[row] = float(text)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        row = int(wrong[0])
        what = f"a number of at least 0 in {columns['weight']!r}"
        advice = "correct it, or leave --edge-weight out"
        raise fault(f"{where} row {before + row + 1}", what, repr(given[row].as_py()), advice)
    return weights


def _edge_texts(values: dict[str, Any], size: int) -> Any:
    """Return "relation: description" of each edge, or the one of both that it has."""
    if "relation" not in values:  # as it stands
        texts = values.get("description", pa.array([""] * size, pa.large_string()))
        return pc.replace_substring(texts, _SENTENCE_BREAK, "\n")
    relations, descriptions = (
        values[role].to_pylist() if role in values else [""] * size
        for role in ("relation", "description")
    )
    joined = [
        ": ".join(part.strip() for part in pair if part.strip())
        for pair in zip(relations, descriptions, strict=True)
    ]
    return pc.replace_substring(pa.array(joined, pa.large_string()), _SENTENCE_BREAK, "\n")
