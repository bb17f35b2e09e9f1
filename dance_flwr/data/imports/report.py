"""What an import did with a graph's files: one summary, printed and stored as `import.json`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import pair_codes
from dance_flwr.data.graphs.folder import split_codes
from dance_flwr.data.graphs.graph import SPLIT_NAMES
from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.imports.layouts import GraphFile
from dance_flwr.data.imports.roles import Chosen
from dance_flwr.errors import counted
from dance_flwr.escaping import one_line

# Too few for a training, a validation and a test node at two clients.
RARE = 6
_MAX_CLASSES = 40  # classes that are printed
_MAX_EXAMPLES = 3  # of names that look alike
# What R, pandas and databases write for a missing value, in lower case.
_ABSENT = ("na", "n/a", "<na>", "nan", "null", "none", r"\n")


@dataclass
class ImportReport:
    """What was read and what was left out.

    Attributes
    ----------
    facts : encoding, delimiter and the like, by file where there are several
    columns : role -> column that fills it; several texts in the order in which they are joined
    columns_left_out : "nodes" or "edges" -> columns that were not read; "files" or "file" -> what
        else was not read of a folder or of a file
    accounts : file -> "nodes" or "edges" -> the number of its `rows`, and its `columns`, each with
        the role that it fills, "" = left out
    counts : numbers of nodes, edges, labels and texts; `edge_rows` is the number of rows of edges,
        the sum of `arcs`, `duplicates`, `loop_rows`, `dangling` and `nameless_edges`
    class_sizes : class -> number of nodes, largest first
    edges_left_out : "relation", "description" or "weight" -> rows with a value that was left out
    warnings : one line each
    directed : whether the format says that edges have a direction; None if it does not say
    classes : those that the file declares
    """

    facts: dict[str, str] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    columns_left_out: dict[str, list[str]] = field(default_factory=dict)
    accounts: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    class_sizes: dict[str, int] = field(default_factory=dict)
    edges_left_out: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    directed: bool | None = None
    classes: list[str] = field(default_factory=list)
    _matches: dict[str, tuple[int, tuple[str, str]]] = field(default_factory=dict)

    def account(self, where: str, rows: str) -> dict[str, Any]:
        """Return the account of the "nodes" or "edges" in a file."""
        of_file = self.accounts.setdefault(Path(where).name, {})
        return of_file.setdefault(rows, {"rows": 0, "columns": {}})  # type: ignore[no-any-return]

    def account_columns(
        self, source: GraphFile, nodes: Sequence[Chosen], edges: Sequence[Chosen]
    ) -> None:
        """Write down which columns of every table are used, and which are not."""
        every = *zip(source.nodes, nodes, strict=True), *zip(source.edges, edges, strict=True)
        used = {(t.where, name) for t, roles in every for names in roles.values() for name in names}
        columns, left_out = self.columns, self.columns_left_out
        for table, roles in every:
            role_of = {source.facts.get("edges from"): "edges"} if table.rows == "nodes" else {}
            for role, names in roles.items():
                role_of |= dict.fromkeys(names, role)
                columns[role] = [*dict.fromkeys([*columns.get(role, ()), *names])]
            of_table = {name: role_of.get(name, "") for name in table.names}
            self.account(table.where, table.rows)["columns"] |= of_table
            # What rows of the other kind in the same table use is not left out.
            rest = [n for n, role in of_table.items() if not role and (table.where, n) not in used]
            left_out[table.rows] = [*dict.fromkeys([*left_out.get(table.rows, ()), *rest])]
        for what, others in source.left_out.items():
            if others:
                left_out[what] = [*left_out.get(what, ()), *others]

    def matched(self, what: str, end: str, number: int, example: tuple[str, str]) -> None:
        """Count ids at an end of edges that differ from those of the nodes in this alone."""
        line = f"{end} ids differ from those of the nodes in {what} alone"
        before, first = self._matches.get(line, (0, example))
        self._matches[line] = before + number, first

    def as_dict(self) -> dict[str, Any]:
        """Return the report for `import.json`."""
        c = self.counts
        left_out = {
            "nodes": {
                "without an id": c["nameless_nodes"],
                "with the id of another": c["duplicate_nodes"],
            },
            "edges": {
                "in the other direction of another": c["arcs"] - c["edges"],
                "equal to another": c["duplicates"],
                "from a node to itself": c["loop_rows"],
                "that name an unknown node": c["dangling"],
                "that name no node": c["nameless_edges"],
            },
        }
        for line, (number, (end, node)) in self._matches.items():
            self.warnings.append(f"{number:,} {line}, and are read as these: {end!a} is {node!a}")
        return {
            **{name: value for name, value in vars(self).items() if name != "_matches"},
            "rows_left_out": {
                rows: {why: number for why, number in of.items() if number}
                for rows, of in left_out.items()
            },
        }


def is_empty(texts: Any) -> Any:
    """Return for each text whether it has no character but white space."""
    return pc.equal(pc.utf8_trim_whitespace(texts), "")


def count_nodes(report: ImportReport, nodes: Any, where: str) -> None:
    """Add the counts of a table of nodes, with their texts, labels and splits, to a report."""
    counts, labels = report.counts, nodes["label"].combine_chunks()
    counts |= {"nodes": len(nodes), "empty_texts": 0, "characters": 0, "longest_text": 0}
    absent: Counter[tuple[str, str]] = Counter()
    for batch in nodes.to_batches():
        lengths = pc.utf8_length(batch["text"])
        counts["empty_texts"] += pc.sum(is_empty(batch["text"])).as_py() or 0
        counts["characters"] += pc.sum(lengths).as_py() or 0
        counts["longest_text"] = max(counts["longest_text"], pc.max(lengths).as_py() or 0)
        for name in ("label", "text"):
            short = batch[name].filter(pc.less(pc.binary_length(batch[name]), 8))
            for row in pc.value_counts(short).to_pylist():
                if (word := row["values"].strip()).lower() in _ABSENT:
                    absent[name, word] += row["counts"]
    split = np.bincount(
        split_codes(nodes["split"].combine_chunks(), where), minlength=len(SPLIT_NAMES)
    )
    counts |= {f"{name}_nodes": int(split[i]) for i, name in enumerate(SPLIT_NAMES) if name}
    sizes = {row["values"]: row["counts"] for row in pc.value_counts(labels).to_pylist()}
    counts["unlabelled"] = sizes.pop("", 0)
    counts["labelled"] = counts["nodes"] - counts["unlabelled"]
    sizes = dict.fromkeys(report.classes, 0) | sizes
    report.class_sizes = dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
    counts["classes"] = len(sizes)
    if counts["empty_texts"]:
        report.warnings.append(
            f"{where}: {counts['empty_texts']} of {counts['nodes']} nodes have an empty text; "
            "they are kept"
        )
    for (column, word), number in sorted(absent.items()):
        what = "with the class" if column == "label" else "with the text"
        report.warnings.append(
            f"{where}: found {counted(number, 'node')} {what} {word!r}; if it means that "
            f"there is none, give --missing {word}"
        )
    for what, values in (("class names", pc.unique(labels)), ("ids", nodes["id"].combine_chunks())):
        if warning := _look_alikes(values, what):
            report.warnings.append(f"{where}: {warning}")


def _look_alikes(names: Any, what: str) -> str:
    """Return a warning of names that differ in Unicode form, case or space alone, else ""."""
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(pc.utf8_normalize(names, form="NFC")))
    counts = pc.value_counts(plain)
    repeated = pc.filter(counts.field(0), pc.greater(counts.field(1), 1))
    variants = (names.filter(pc.equal(plain, name)) for name in repeated[:_MAX_EXAMPLES])
    # ASCII, as two forms of one character look the same.
    examples = [" and ".join(map(ascii, of[:_MAX_EXAMPLES].to_pylist())) for of in variants]
    more = f"; and {len(repeated) - _MAX_EXAMPLES:,} more" if len(repeated) > _MAX_EXAMPLES else ""
    line = (
        f"{what} that differ only in Unicode form, case or surrounding space stay different: "
        f"{'; '.join(examples)}{more}; rename them if they mean the same"
    )
    return line if examples else ""


def count_edges(
    report: ImportReport, source: NDArray[Any], target: NDArray[Any]
) -> NDArray[np.int64]:
    """Add the counts of edges to a report, and return the `pair_codes` of the edges, sorted.

    `arcs` are different (source, target), `edges` different pairs, `directed_edges` both directions
    of these; self loops are in none of them. `one_way` are pairs of which the file has one
    direction only.
    """
    n = report.counts["nodes"]
    is_loop = source == target
    # One number for each direction of a pair: n is at most 10^8 by default, so it fits into int64.
    codes = pair_codes(source, target, n)
    codes *= 2
    codes += source > target
    arcs = _distinct(codes[~is_loop])
    pairs = _distinct(arcs >> 1)
    linked = np.zeros(n, bool)
    linked[pairs // n] = linked[pairs % n] = True
    report.counts |= {
        "edges": len(pairs),
        "directed_edges": 2 * len(pairs),
        "arcs": len(arcs),
        "one_way": 2 * len(pairs) - len(arcs),
        "self_loops": len(_distinct(source[is_loop])),
        "loop_rows": int(is_loop.sum()),
        "duplicates": len(source) - int(is_loop.sum()) - len(arcs),
        "isolated": n - int(linked.sum()),
    }
    return pairs


def _distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the different numbers, sorted; sorts in place, as `np.unique` takes ten times."""
    numbers.sort()
    is_first = np.ones(len(numbers), bool)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    return numbers[is_first]


def summary_lines(report: dict[str, Any]) -> list[str]:
    """Return a report as aligned lines, for people."""
    counts, sizes = report["counts"], report["class_sizes"]
    rows = [("format", report["kind"]), *report["facts"].items()]
    rows += [(role, listed(names)) for role, names in report["columns"].items()]
    for table, names in report["columns_left_out"].items():
        what = f"left out of the {'folder' if table == 'files' else table}"
        if names:
            rows.append((what, f"{'' if table.startswith('file') else 'columns '}{listed(names)}"))
    empty = f"longest {counts['longest_text']:,} characters, {counts['empty_texts']:,} empty"
    labels = (
        f"{counted(counts['classes'], 'class', 'classes')}, {counted(counts['labelled'], 'node')} "
        f"labelled, {counts['unlabelled']:,} not"
    )
    rows += [("texts", empty), ("labels", labels if counts["classes"] else "none")]
    if "labels_corrected" in counts:
        words = ("corrected", "added", "confirmed")
        of_verdicts = ", ".join(f"{counts[f'labels_{w}']:,} {w}" for w in words)
        rows.append(("", f"by verdicts: {of_verdicts}"))
    width = len(f"{max(sizes.values(), default=0):,}")
    rows += [
        ("", f"{size:{width},}  {listed([name])}{'  (rare)' if size < RARE else ''}")
        for name, size in list(sizes.items())[:_MAX_CLASSES]
    ]
    if len(sizes) > _MAX_CLASSES:
        rows.append(("", f"and {len(sizes) - _MAX_CLASSES:,} smaller classes"))
    one_way = f", {counts['one_way']:,} in one direction only, read in both"
    merged = (
        f"{counts['duplicates']:,} duplicates merged, {counts['loop_rows']:,} self-loops dropped"
    )
    directed = "" if report["directed"] is False else one_way
    rows.append(("edges", f"{merged}{directed}; {counted(counts['isolated'], 'isolated node')}"))
    rows += [
        ("read", f"{counted(account['rows'], 'row')} of {kind} in {name}")
        for name, of_file in report["accounts"].items()
        for kind, account in of_file.items()
    ]
    for kind, why in report["rows_left_out"].items():
        parts = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
        rows += [("left out", f"rows of {kind}: {parts}")] if parts else []
    rows += [("left out", line) for line in left_out(report["edges_left_out"])]
    width = max(len(what) for what, _ in rows)
    return [f"{one_line(what):{width}}  {value}" for what, value in rows]


def left_out(edges_left_out: dict[str, int]) -> list[str]:
    """Return a line for each kind of value of edges that was left out, with what keeps it."""
    remedies = {"weight": "--edge-weight COLUMN"}
    return [
        f"the {what} of {counted(number, 'edge')}; {remedies.get(what, '--edge-text append')} "
        "keeps them"
        for what, number in edges_left_out.items()
        if number
    ]
