"""GraphML and GEXF as NetworkX, Gremlin, Gephi, yEd and LightRAG write them.

NetworkX's own readers ignore defaults of keys and refuse graphs with directed and undirected edges.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import GraphFile, declared, layout_of
from dance_flwr.data.imports.records import column_table, opened, unpacked, unused
from dance_flwr.errors import DataError

_HEAD, _BLOCK = 1 << 12, 1 << 18
_DEPTH = 1000  # no graph is nested so deep
# What XML cannot hold: written as it is, or as a reference.
_CONTROL = re.compile(
    rb"[\0-\x08\x0b\x0c\x0e-\x1f]"
    rb"|&#(?:0*(?:[0-8]|1[124-9]|2[0-9]|3[01])|x0*(?:[0-8bcef]|1[0-9a-f]));",
    re.IGNORECASE,
)
_DIRECTED = ("true", "1", "directed", "mutual")
_TOOLS = ("Gephi", "NetworkX")
_GRAPHML, _GEXF = "GraphML", "GEXF"
# Attributes of an element that are columns; a node must have the first, an edge the first two.
_OWN = {
    (_GRAPHML, "nodes"): ("id", "label"),
    (_GRAPHML, "edges"): ("source", "target", "id", "label", "directed"),
    (_GEXF, "nodes"): ("id", "label", "pid", "start", "end"),
    (_GEXF, "edges"): (
        *("source", "target", "id", "label", "weight", "kind", "type", "start", "end"),
    ),
}
_LABELS = ("NodeLabel", "EdgeLabel")  # that yEd draws


def format_of(file: Path) -> str:
    """Return ".graphml" or ".gexf" for a file in XML, by its first element; "" for others."""
    with unpacked(file), opened(file) as stream:
        head = stream.read(_HEAD)
    return next((s for s in (".graphml", ".gexf") if b"<" + s[1:].encode() in head), "")


def read_graphml(file: Path) -> GraphFile:
    """Return the first graph in a GraphML file; graphs inside of nodes are part of it.

    Raises
    ------
    DataError : the file is damaged, or has hyperedges
    """
    reader = _Reader(file, _GRAPHML)
    facts = reader.read()
    if reader.graphs > 1:
        facts["graphs"] = f"the first of {reader.graphs}"
    if reader.inner:
        facts["graphs inside of nodes"] = f"{reader.inner}, their nodes and edges included"
    if reader.further_labels:
        facts["further labels left out"] = str(reader.further_labels)
    names = [*(key for _, key in reader.keys), *reader.nodes.attributes]
    # "@" is yEd's label, which is drawn and no attribute.
    layout = layout_of("graphml", names + ["@"] * reader.is_drawn) or {
        "kind": "GraphML",
        "roles": {},
    }
    drawn = {"text": reader.nodes.name("label"), "relation": reader.edges.name("label")}
    roles = {
        role: drawn[role] if name == "@" else name for role, (name,) in layout["roles"].items()
    }
    return reader.graph(layout["kind"], {**roles, "weight": "weight"}, facts)


def read_gexf(file: Path) -> GraphFile:
    """Return the graph in a GEXF file; nodes inside of nodes stand beside them, with their `pid`.

    Colours, sizes and places are ignored.
    """
    reader = _Reader(file, _GEXF)
    facts = reader.read()
    if reader.mode == "dynamic":
        facts["mode"] = "dynamic; values that change are lists"
    if reader.inner:
        facts["nodes inside of nodes"] = f"{reader.inner}, taken out"
    label, kind, weight = (reader.edges.name(own) for own in ("label", "kind", "weight"))
    # What a parallel edge means is its kind, and before GEXF 1.3 its label.
    columns = reader.edges.columns()
    roles = {"relation": kind, "description": label} if kind in columns else {"relation": label}
    roles["weight"] = weight if weight in columns else "weight"
    # The label of a node is its name on the screen, and its text if there is no other.
    if "text" not in reader.nodes.attributes:
        roles["text"] = reader.nodes.name("label")
    return reader.graph(f"GEXF {reader.version}{reader.tool}", roles, facts)


class _Rows:
    """Nodes or edges in the order of the file; names of own columns have a NUL in front."""

    def __init__(self, file: Path, what: str, rows: str) -> None:
        self.file, self.rows, self.own = file, rows, _OWN[what, rows]
        self.required = self.own[:1] if rows == "nodes" else self.own[:2]
        self.records: list[dict[str, Any]] = []
        self.attributes: dict[str, Any] = {}  # the other columns, with their defaults

    def declare(self, name: str, default: Any = "") -> None:
        """Add an attribute; of several defaults the first that is not empty counts."""
        self.attributes[name] = self.attributes.get(name) or default
        check(self.file, columns=len(self.attributes))

    def name(self, own: str) -> str:
        """Return the name of an own column; with "@" in front if an attribute has this name."""
        return unused(own, self.attributes)

    def columns(self) -> dict[str, tuple[str, Any]]:
        """Return column -> key of records and default, without own columns that are empty."""
        used = {f"\0{name}" for name in self.required}.union(*self.records)
        own = {self.name(n): (f"\0{n}", "") for n in self.own if f"\0{n}" in used}
        return own | {name: (name, default) for name, default in self.attributes.items()}

    def table(self) -> Table:
        def values(key: str, default: Any) -> list[Any]:
            return [record.get(key, default) for record in self.records]

        columns = {name: partial(values, *of) for name, of in self.columns().items()}
        return column_table(self.file, self.rows, len(self.records), columns)


class _Reader:
    """Reads the elements of a file one after the other.

    Attributes
    ----------
    keys : kind of rows in GEXF, else "", and id -> name and type of each declared attribute
    graphs, inner : number of graphs, and of graphs or nodes inside of nodes
    directed : number of edges with a direction
    version, mode, tool : what the file says; the tool as " of Gephi"
    is_drawn : whether a key holds the drawing of yEd
    further_labels : number of drawn labels after the first of a node or an edge
    """

    def __init__(self, file: Path, what: str) -> None:
        self.file, self.what = file, what
        self.nodes, self.edges = _Rows(file, what, "nodes"), _Rows(file, what, "edges")
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.graphs = self.inner = self.directed = self.further_labels = 0
        self.version, self.mode, self.tool, self.is_drawn = "", "", "", False
        self._encoding = "utf-8"
        self._tree = TreeBuilder()
        self._around: list[Element] = []  # open elements
        # Rows of open nodes and edges; None if left out.
        self._open: list[tuple[_Rows, dict[str, Any]] | None] = []
        self._directions: list[str] = []  # of the edges in the open graphs
        self._usual = ""  # direction of the edges in the first graph

    def read(self) -> dict[str, str]:
        """Read the whole file, and return what is said about it.

        Raises
        ------
        DataError : the file is not XML, an element lacks an attribute, or it exceeds a bound
        """
        parser, start, before = expat.ParserCreate(namespace_separator="}"), 0, b""
        parser.buffer_text = True
        parser.XmlDeclHandler, parser.EntityDeclHandler = self._declared, self._refuse_entities
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._tree.data
        try:
            with unpacked(self.file), opened(self.file) as stream:
                # In large blocks, as a tag longer than one is scanned again with every block.
                while block := stream.read(_BLOCK):
                    if not start and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        self._encoding = "utf-16"
                    parser.Parse(block)
                    start, before = start + len(block), block
                parser.Parse(b"", True)
        except KeyError as error:
            raise self._damaged(f"an element without {error}") from error
        except expat.ExpatError as error:
            place = max(parser.ErrorByteIndex - start + len(before), 0)
            if found := _CONTROL.match(before + block, place):
                raise self._control(found[0], error) from None
            raise self._damaged(str(error)) from error
        except (LookupError, ValueError, OSError) as error:
            raise self._damaged(str(error) or type(error).__name__) from error
        if not self.graphs:
            raise self._damaged("no graph in it")
        facts, size = {"encoding": self._encoding}, len(self.edges.records)
        mixed = {"directed": f"{self.directed} of {size} edges"}
        return facts | (mixed if 0 < self.directed < size else {})

    def graph(self, kind: str, roles: dict[str, str], facts: dict[str, str]) -> GraphFile:
        """Return the graph, with the roles whose columns exist."""
        own = {"id": self.nodes.name("id")}
        own |= {end: self.edges.name(end) for end in ("source", "target")}
        nodes, edges = (
            (declared(rows.table(), {**roles, **own}),) for rows in (self.nodes, self.edges)
        )
        # Without edges, whether they usually have a direction.
        directed = self.directed > 0 if self.edges.records else self._usual in _DIRECTED
        return GraphFile(kind, (self.file,), nodes, edges, facts, directed=directed)

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self._encoding = (encoding or self._encoding).lower()

    def _refuse_entities(self, *_: object) -> None:
        """Refuse entities, which can expand to any size."""
        raise DataError(
            f"{self.file}: expected plain {self.what}, found entity declarations; remove them"
        )

    def _control(self, found: bytes, error: expat.ExpatError) -> DataError:
        name = found.decode() if found[:1] == b"&" else f"U+{found[0]:04X}"
        return DataError(
            f"{self.file}: expected {self.what}, found the control character {name} at line "
            f"{error.lineno}, column {error.offset + 1}, which XML cannot hold; remove it from the "
            "texts, and export them again, or delete it in the file"
        )

    def _damaged(self, reason: str) -> DataError:
        reason = " ".join(reason.split())[:160]
        return DataError(f"{self.file}: expected {self.what}, found: {reason}; export it again")

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
                self._usual = self._usual or direction
                self.mode = given.get("mode", "static")
            self._directions.append(direction)
        elif name == "hyperedge" and is_first:
            # A hyperedge has no two ends; NetworkX refuses it, too.
            raise self._damaged("a hyperedge")
        elif name in ("node", "edge"):
            if self.what == _GEXF and self.graphs > 1:
                raise self._damaged("several graphs")
            self._open.append(self._row(name, given) if is_first else None)

    def _row(self, name: str, given: dict[str, str]) -> tuple[_Rows, dict[str, Any]]:
        """Store the row of an element with these attributes, and return it."""
        rows = self.nodes if name == "node" else self.edges
        if name == "edge":
            direction = given.get("directed") or given.get("type") or self._directions[-1]
            self.directed += direction in _DIRECTED
        if self.what == _GRAPHML:
            given = given | {"label": ""}  # a label is what yEd draws, and no attribute
        elif name == "edge":
            given = given | {"weight": typed(given.get("weight", ""), "double")}
        else:
            outer = self._open[-1] if self._open else None
            given = {"pid": outer[1].get("\0id", "") if outer else "", **given}
            self.inner += bool(given["pid"])
        own = {required: given[required] for required in rows.required} | given
        rows.records.append({f"\0{n}": own[n] for n in rows.own if own.get(n)})
        check(self.file, **{rows.rows: len(rows.records)})
        return rows, rows.records[-1]

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
        elif name == "creator":
            tools = (tool for tool in _TOOLS if tool.lower() in (element.text or "").lower())
            self.tool = next((f" of {tool}" for tool in tools), "")
        # What is read is not kept: the tree has the open elements alone.
        if outer is not element and (
            name in ("node", "edge") or not (self._open or name == "default")
        ):
            outer.remove(element)

    def _fill(self, rows: _Rows, record: dict[str, Any], element: Element) -> None:
        """Store the attributes in an element of a row."""
        if self.what == _GEXF:
            for value in element.iter("attvalue"):
                # `for` was `id` in the first versions.
                name = value.get("for") or value.attrib["id"]
                self._put(rows, record, name, value.attrib["value"])
            return
        for data in element.findall("data"):
            for label in (one for name in _LABELS for one in data.iter(name)):
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
        tables = {"node": (self.nodes,), "edge": (self.edges,), "all": (self.nodes, self.edges)}
        # "all" is what the specification of GraphML takes where a key names no domain.
        domain = given.get("for", "all") if self.what == _GRAPHML else outer.attrib["class"]
        self.keys["" if self.what == _GRAPHML else f"{domain}s", given["id"]] = name, kind
        for rows in tables.get(domain, ()) if not drawing else ():
            rows.declare(name, "" if default is None else typed(default, kind))

    def _put(self, rows: _Rows, record: dict[str, Any], attribute: str, text: str | None) -> None:
        """Store an attribute of a row; values of one that repeats become a list."""
        key = ("" if self.what == _GRAPHML else rows.rows, attribute)
        # Gephi 0.7 writes weights as an attribute that it does not declare.
        usual = ("weight", "double") if key[0] and attribute == "weight" else ("", "")
        name, kind = self.keys.get(key, usual)
        if key not in self.keys and not name:
            raise self._damaged(f"an attribute of the unknown key {attribute!r:.80}")
        if text is None:
            return
        if name not in rows.attributes:
            rows.declare(name)
        value = typed(text, kind)
        if isinstance(record.get(name), list):
            record[name].append(value)
        else:
            record[name] = [record[name], value] if name in record else value


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
