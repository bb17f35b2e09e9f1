"""GraphML and GEXF as NetworkX, Gremlin, Gephi, yEd and LightRAG write them.

NetworkX's own readers ignore defaults of keys and refuse graphs with directed and undirected edges.
"""

import re
import zlib
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table, readable
from dance_flwr.data.imports.layouts import ENDS, GraphFile, layout_of
from dance_flwr.data.imports.records import Record, fault, opened, record_table, unused
from dance_flwr.errors import DataError

_HEAD, _BLOCK = 1 << 12, 1 << 18
_DEPTH = 1000  # no graph is nested so deep
# Of expat, for what another export of the same texts would not mend.
_CONTROL = [
    expat.errors.codes[what]
    for what in (expat.errors.XML_ERROR_INVALID_TOKEN, expat.errors.XML_ERROR_BAD_CHAR_REF)
]
_DIRECTED = ("true", "1", "directed", "mutual")
# Attributes of an element that are columns, and those that it must have. A label in GraphML is the
# one that yEd draws.
_OWN = {
    ("GraphML", "nodes"): "id label",
    ("GraphML", "edges"): "source target id label directed",
    ("GEXF", "nodes"): "id label pid start end",
    ("GEXF", "edges"): "source target id label weight kind type start end",
}
_NEEDED = {"nodes": ("id",), "edges": ENDS[0]}
_DRAWN = ("NodeLabel", "EdgeLabel")


def format_of(file: Path) -> str:
    """Return ".graphml" or ".gexf" for a file in XML, by its first element; "" for others."""
    with readable(file), opened(file) as stream:
        head = stream.read(_HEAD)
    return next((s for s in (".graphml", ".gexf") if b"<" + s[1:].encode() in head), "")


def read_graphml(file: Path) -> GraphFile:
    """Return the first graph in a GraphML file; graphs inside of nodes are part of it.

    Raises
    ------
    DataError : the file is damaged, or has hyperedges
    """
    reader = _Reader(file, "GraphML")
    names = [*(key for _, key in reader.keys), *reader.attributes["nodes"]]
    # "@" is yEd's label, which is drawn and no attribute.
    layout = layout_of("graphml", names + ["@"] * reader.is_drawn) or {"roles": {}}
    drawn = {"text": reader.own("nodes", "label"), "relation": reader.own("edges", "label")}
    roles = {role: drawn[role] if c == "@" else c for role, (c,) in layout["roles"].items()}
    inside = f"{reader.inner}, their nodes and edges included"
    facts = {
        "graphs": f"the first of {reader.graphs}" * (reader.graphs > 1),
        "graphs inside of nodes": inside * bool(reader.inner),
        "further labels left out": str(reader.further_labels or ""),
    }
    return reader.graph(layout.get("kind", "GraphML"), {"weight": "weight", **roles}, facts)


def read_gexf(file: Path) -> GraphFile:
    """Return the graph in a GEXF file; nodes inside of nodes stand beside them, with their `pid`.

    Colours, sizes and places are ignored.
    """
    reader = _Reader(file, "GEXF")
    label, kind, weight = (reader.own("edges", own) for own in ("label", "kind", "weight"))
    # What a parallel edge means is its kind, and before GEXF 1.3 its label.
    columns = reader.columns("edges")
    roles = {"relation": kind, "description": label} if kind in columns else {"relation": label}
    roles["weight"] = weight if weight in columns else "weight"
    # The label of a node is its name on the screen, and its text if there is no other.
    if "text" not in reader.attributes["nodes"]:
        roles["text"] = reader.own("nodes", "label")
    facts = {"nodes inside of nodes": f"{reader.inner}, taken out" if reader.inner else ""}
    return reader.graph(f"GEXF {reader.version}", roles, facts)


class _Reader:
    """Reads a file, element by element.

    Attributes
    ----------
    records : "nodes" or "edges" -> rows in the order of the file, with a NUL before own columns
    attributes : "nodes" or "edges" -> the other columns, with their defaults
    keys : kind of rows in GEXF, else "", and id -> name and type of each declared attribute
    graphs, inner : number of graphs, and of graphs or nodes inside of nodes
    directed : number of edges with a direction
    version : of GEXF, as the file says
    is_drawn : whether a key holds the drawing of yEd
    further_labels : number of drawn labels after the first of a node or an edge
    """

    def __init__(self, file: Path, what: str) -> None:
        self.file, self.what = file, what
        self.records: dict[str, list[Record]] = {"nodes": [], "edges": []}
        self.attributes: dict[str, Record] = {"nodes": {}, "edges": {}}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.graphs = self.inner = self.directed = self.further_labels = 0
        self.version, self.is_drawn = "", False
        self._encoding = "utf-8"
        self._tree = TreeBuilder()
        self._around: list[Element] = []  # open elements
        # Kind and row of each open node and edge; None if left out.
        self._open: list[tuple[str, Record] | None] = []
        self._directions: list[str] = []  # of the edges in the open graphs
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.XmlDeclHandler, parser.EntityDeclHandler = self._declared, self._refuse_entities
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._tree.data
        try:
            with opened(file) as stream:
                # In large blocks, as a tag longer than one is scanned again with every block.
                while block := stream.read(_BLOCK):
                    if not parser.CurrentByteIndex > 0 and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        self._encoding = "utf-16"
                    parser.Parse(block)
                parser.Parse(b"", True)
        except KeyError as error:
            raise self._damaged(f"an element without {error}") from error
        except (expat.ExpatError, LookupError, ValueError, OSError, EOFError, zlib.error) as error:
            advice = "export it again"
            if getattr(error, "code", 0) in _CONTROL:
                advice = f"remove control characters, if any, which XML cannot hold, and {advice}"
            raise fault(file, what, error, advice) from error
        if not self.graphs:
            raise self._damaged("no graph in it")

    def own(self, rows: str, name: str) -> str:
        """Return the name of an own column; with "@" in front if an attribute has this name."""
        return unused(name, self.attributes[rows])

    def columns(self, rows: str) -> dict[str, str]:
        """Return column -> key of records, without own columns that are empty."""
        own = _OWN[self.what, rows].split()
        used = {f"\0{name}" for name in _NEEDED[rows]}.union(*self.records[rows])
        columns = {self.own(rows, n): f"\0{n}" for n in own if f"\0{n}" in used}
        return columns | {name: name for name in self.attributes[rows]}

    def graph(self, kind: str, roles: dict[str, str], facts: dict[str, str]) -> GraphFile:
        """Return the graph, with the facts that are not empty."""
        roles |= {"id": self.own("nodes", "id")}
        roles |= {end: self.own("edges", end) for end in ENDS[0]}
        size = len(self.records["edges"])
        mixed = f"{self.directed} of {size} edges" if 0 < self.directed < size else ""
        facts = {"encoding": self._encoding, "directed": mixed, **facts}
        return GraphFile(
            kind,
            (self.file,),
            (self._table("nodes"),),
            (self._table("edges"),),
            roles,
            {what: value for what, value in facts.items() if value},
            directed=self.directed > 0 if size else None,
        )

    def _table(self, rows: str) -> Table:
        columns, defaults = self.columns(rows), self.attributes[rows]
        records = (
            {n: record.get(key, defaults.get(n, "")) for n, key in columns.items()}
            for record in self.records[rows]
        )
        return record_table(self.file, rows, records, columns)

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self._encoding = (encoding or self._encoding).lower()

    def _refuse_entities(self, *_: object) -> None:
        """Refuse entities, which can expand to any size."""
        raise fault(self.file, f"plain {self.what}", "entity declarations", "remove them")

    def _start(self, name: str, given: dict[str, str]) -> None:
        name = name.rpartition("}")[2]
        self._around.append(self._tree.start(name, given))
        if len(self._around) > _DEPTH:
            raise self._damaged(f"elements in elements, {_DEPTH} deep")
        is_first = self.graphs == 1 and bool(self._directions)
        if name == "gexf":
            self.version = given.get("version", "")[:8]
        elif name == "graph":
            direction = given.get("edgedefault", given.get("defaultedgetype", "undirected"))
            if self._directions:
                self.inner += is_first
            else:
                self.graphs += 1
            self._directions.append(direction)
        elif name == "hyperedge" and is_first:
            # A hyperedge has no two ends; NetworkX refuses it, too.
            raise self._damaged("a hyperedge")
        elif name in ("node", "edge"):
            if self.what == "GEXF" and self.graphs > 1:
                raise self._damaged("several graphs")
            self._open.append((f"{name}s", self._row(f"{name}s", given)) if is_first else None)

    def _row(self, rows: str, given: dict[str, str]) -> Record:
        """Store the row of an element with these attributes, and return it."""
        if rows == "edges":
            direction = given.get("directed") or given.get("type") or self._directions[-1]
            self.directed += direction in _DIRECTED
        if self.what == "GraphML":
            given = given | {"label": ""}
        elif rows == "edges":
            given = given | {"weight": typed(given.get("weight", ""), "double")}
        else:
            outer = self._open[-1] if self._open else None
            given = {"pid": outer[1].get("\0id", "") if outer else "", **given}
            self.inner += bool(given["pid"])
        names = _OWN[self.what, rows].split()
        given = {name: given[name] for name in _NEEDED[rows]} | given
        record = {f"\0{name}": given[name] for name in names if given.get(name)}
        self.records[rows].append(record)
        check(self.file, **{rows: len(self.records[rows])})
        return record

    def _end(self, name: str) -> None:
        element = self._around.pop()
        name, outer = element.tag, self._around[-1] if self._around else element
        self._tree.end(name)
        if name in ("node", "edge"):
            if row := self._open.pop():
                self._fill(*row, element)
        elif name == "graph":
            self._directions.pop()
        elif name in ("key", "attribute"):
            self._key(element.attrib, element.findtext("default"), outer)
        # What is read is not kept: the tree has the open elements alone.
        if outer is not element and (
            name in ("node", "edge") or not (self._open or name == "default")
        ):
            outer.remove(element)

    def _fill(self, rows: str, record: Record, element: Element) -> None:
        """Store the attributes in an element of a row."""
        for value in element.iter("attvalue"):
            # `for` was `id` in the first versions of GEXF.
            self._put(rows, record, value.get("for") or value.attrib["id"], value.attrib["value"])
        for data in element.findall("data"):
            for label in (one for name in _DRAWN for one in data.iter(name)):
                if label.text and label.text.strip():
                    self.further_labels += "\0label" in record
                    record.setdefault("\0label", label.text)
            # The drawing that yEd keeps as an attribute has elements in it.
            self._put(rows, record, data.attrib["key"], None if len(data) else data.text or "")

    def _key(self, given: dict[str, str], default: str | None, outer: Element) -> None:
        """Declare an attribute."""
        drawing = given.get("yfiles.type", "")
        self.is_drawn = self.is_drawn or bool(drawing)
        name = given.get("attr.name", given.get("title", drawing or given["id"]))
        kind = given.get("attr.type", given.get("type", "string"))
        # "all" is what the specification of GraphML takes where a key names no domain.
        domain = given.get("for", "all") if self.what == "GraphML" else outer.attrib["class"]
        self.keys["" if self.what == "GraphML" else f"{domain}s", given["id"]] = name, kind
        for rows in ("nodes", "edges") if domain == "all" else (f"{domain}s",):
            if rows in self.attributes and not drawing:
                self._add(rows, name, "" if default is None else typed(default, kind))

    def _add(self, rows: str, name: str, default: Any = "") -> None:
        """Add a column; of several defaults the first that is not empty counts."""
        self.attributes[rows][name] = self.attributes[rows].get(name) or default
        check(self.file, columns=len(self.attributes[rows]))

    def _put(self, rows: str, record: Record, attribute: str, text: str | None) -> None:
        """Store an attribute of a row; values of one that repeats become a list."""
        key = ("" if self.what == "GraphML" else rows, attribute)
        # Gephi 0.7 writes weights as an attribute that it does not declare.
        usual = ("weight", "double") if key == (rows, "weight") else ("", "")
        name, kind = self.keys.get(key, usual)
        if key not in self.keys and not name:
            raise self._damaged(f"an attribute of the unknown key {attribute!r:.80}")
        if text is None:
            return
        if name not in self.attributes[rows]:
            self._add(rows, name)
        value = typed(text, kind)
        if isinstance(record.get(name), list):
            record[name].append(value)
        else:
            record[name] = [record[name], value] if name in record else value

    def _damaged(self, found: str) -> DataError:
        return fault(self.file, self.what, found)


def typed(text: str, kind: str) -> Any:
    """Return the value of an attribute with a declared type, as its file writes it.

    Only the ".0" of whole numbers is left out, so that a column of integers with a gap, which data
    frames turn into floats, has the same values in every format.

    Parameters
    ----------
    kind : type in GraphML or GEXF; of a list, the text becomes a list of one
    """
    kind = kind.lower()
    if kind.startswith("list"):
        return [text]
    if kind == "string":
        return text
    text = text.strip()
    if kind in ("float", "double", "real"):
        text = re.sub(r"^(-?\d+)\.0+$", r"\1", text)
        return "" if text.lower() == "nan" else text
    return text.lower() if kind in ("boolean", "bool") else text
