"""GraphML and GEXF as NetworkX, Gremlin, Gephi, yEd and LightRAG write them.

NetworkX's own readers ignore defaults of keys and refuse graphs with directed and undirected edges.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.graphs.tables import Table
from dance_flwr.data.imports.layouts import GraphFile, graphml_layout
from dance_flwr.data.imports.memory_tables import memory_table, values_of
from dance_flwr.errors import DataError

_HEAD, _BLOCK = 1 << 12, 1 << 20
_DEPTH = 1000  # no graph is nested so deep
_DIRECTED = ("true", "1", "directed", "mutual")
_TOOLS = ("Gephi", "NetworkX")
# Attributes of an element that are columns; a node must have the first, an edge the first two.
_GRAPHML = ("id", "label"), ("source", "target", "id", "label", "directed")
_GEXF = (
    ("id", "label", "pid", "start", "end"),
    ("source", "target", "id", "label", "weight", "kind", "type", "start", "end"),
)


def format_of(file: Path) -> str:
    """Return ".graphml" or ".gexf" for a file in XML, by its first element; "" for others."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    return next((s for s in (".graphml", ".gexf") if b"<" + s[1:].encode() in head), "")


def read_graphml(file: Path) -> GraphFile:
    """Return the first graph in a GraphML file; graphs inside of nodes are part of it.

    Raises
    ------
    DataError : the file is damaged, or has hyperedges
    """
    reader = _Reader(file, "GraphML", *_GRAPHML)
    reader.read()
    nodes, edges, facts = reader.nodes, reader.edges, reader.facts()
    if reader.graphs > 1:
        facts["graphs"] = f"the first of {reader.graphs}"
    if reader.inner:
        facts["graphs inside of nodes"] = f"{reader.inner}, their nodes and edges included"
    if reader.further_labels:
        facts["further labels left out"] = str(reader.further_labels)
    names = [
        *(key for _, key in reader.keys),
        *nodes.attributes,
        *(["@"] if reader.is_drawn else []),
    ]
    kind, columns = graphml_layout(names)
    drawn = {"text": nodes.name("label"), "relation": edges.name("label")}
    # "@" is yEd's label, which is drawn and no attribute.
    roles = {role: drawn[role] if name == "@" else name for role, name in columns.items()}
    return reader.graph(kind, roles, facts)


def read_gexf(file: Path) -> GraphFile:
    """Return the graph in a GEXF file; nodes inside of nodes stand beside them, with their `pid`.

    Colours, sizes and places are ignored.
    """
    reader = _Reader(file, "GEXF", *_GEXF)
    reader.read()
    nodes, edges, facts = reader.nodes, reader.edges, reader.facts()
    if reader.mode == "dynamic":
        facts["mode"] = "dynamic; values that change are lists"
    if reader.inner:
        facts["nodes inside of nodes"] = f"{reader.inner}, taken out"
    label, kind = edges.name("label"), edges.name("kind")
    # What a parallel edge means is its kind, and before GEXF 1.3 its label.
    has_kind = kind in edges.names()
    roles = {"relation": kind, "description": label} if has_kind else {"relation": label}
    roles["weight"] = edges.name("weight") if edges.name("weight") in edges.names() else "weight"
    # The label of a node is its name on the screen, and its text if there is no other.
    if "text" not in nodes.attributes:
        roles["text"] = nodes.name("label")
    return reader.graph(f"GEXF {reader.version}{reader.tool}", roles, facts)


class _Rows:
    """Nodes or edges in the order of the file.

    Attributes
    ----------
    records : one mapping per row; names of the format's own columns have a NUL in front
    attributes : names of the other columns, in order, with their defaults
    """

    def __init__(self, file: Path, rows: str, own: tuple[str, ...], required: int) -> None:
        self.file, self.rows = file, rows
        self.records: list[dict[str, Any]] = []
        self.attributes: dict[str, Any] = {}
        self._own, self._required = own, own[:required]

    def add(self, given: dict[str, str]) -> dict[str, Any]:
        """Store the row of an element with these attributes, and return it."""
        own = {name: given[name] for name in self._required} | given
        self.records.append({f"\0{name}": own[name] for name in self._own if own.get(name)})
        check(self.file, **{self.rows: len(self.records)})
        return self.records[-1]

    def declare(self, name: str, default: Any = "") -> None:
        """Add an attribute; of several defaults the first that is not empty counts."""
        self.attributes[name] = self.attributes.get(name) or default
        check(self.file, columns=len(self.attributes))

    def put(self, record: dict[str, Any], name: str, value: Any) -> None:
        """Store an attribute of a row; values of an attribute that repeats become a list."""
        if name not in self.attributes:
            self.declare(name)
        if name not in record:
            record[name] = value
        elif isinstance(record[name], list):
            record[name].append(value)
        else:
            record[name] = [record[name], value]

    def name(self, own: str) -> str:
        """Return the name of an own column; with "@" in front if an attribute has this name."""
        while own in self.attributes:
            own = "@" + own
        return own

    def names(self) -> dict[str, tuple[str, Any]]:
        """Return column -> key of records and default, without own columns that are empty."""
        used = {f"\0{name}" for name in self._required}.union(*self.records)
        own = {self.name(n): (f"\0{n}", "") for n in self._own if f"\0{n}" in used}
        return own | {name: (name, default) for name, default in self.attributes.items()}

    def table(self) -> Table:
        columns = {name: values_of(self.records, *of) for name, of in self.names().items()}
        return memory_table(self.file, self.rows, len(self.records), columns)


class _Reader:
    """Reads the elements of a file one after the other.

    Attributes
    ----------
    keys : kind of rows in GEXF, else "", and id -> name and type of each declared attribute
    open : rows of the open nodes and edges; None for those that are left out
    graphs, inner : number of graphs, and of graphs or nodes inside of nodes
    directed : number of edges with a direction
    encoding, version, mode, tool : what the file says; the tool as " of Gephi"
    is_drawn : whether a key holds the drawing of yEd
    further_labels : number of drawn labels after the first of a node or an edge
    """

    def __init__(
        self, file: Path, what: str, nodes: tuple[str, ...], edges: tuple[str, ...]
    ) -> None:
        self.file, self.what = file, what
        self.nodes, self.edges = _Rows(file, "nodes", nodes, 1), _Rows(file, "edges", edges, 2)
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.open: list[dict[str, Any] | None] = []
        self.graphs = self.inner = self.directed = self.further_labels = 0
        self.encoding, self.version, self.mode, self.tool = "utf-8", "", "", ""
        self.is_drawn = False
        self._around: list[Any] = []  # open elements
        self._directions: list[str] = []  # of the edges in the open graphs
        self._default = ""  # direction of the edges in the first graph
        self._class = ""  # of the attributes in GEXF that are being declared

    def read(self) -> None:
        """Read the whole file.

        Raises
        ------
        DataError : the file is not XML, an element lacks an attribute, or it exceeds a bound
        """
        try:
            self._prolog()
            for event, element in self._events():
                (self._start if event == "start" else self._end)(_local(element), element)
        except KeyError as error:
            raise self._damaged(f"an element without {error}") from error
        except (SyntaxError, expat.ExpatError, LookupError, ValueError, OSError) as error:
            raise self._damaged(str(error) or type(error).__name__) from error
        if not self.graphs:
            raise self._damaged("no graph in it")

    def _events(self) -> Iterator[tuple[str, Any]]:
        parser: Any = ElementTree.XMLPullParser(("start", "end"))
        with self.file.open("rb") as stream:
            # In large blocks, as a tag longer than one is scanned again with every block.
            while block := stream.read(_BLOCK):
                parser.feed(block)
                yield from parser.read_events()
        parser.close()
        yield from parser.read_events()

    def facts(self) -> dict[str, str]:
        """Return what is said about the file."""
        facts, size = {"encoding": self.encoding}, len(self.edges.records)
        return facts | (
            {"directed": f"{self.directed} of {size} edges"} if 0 < self.directed < size else {}
        )

    def graph(self, kind: str, roles: dict[str, str], facts: dict[str, str]) -> GraphFile:
        """Return the graph, with those of the roles whose columns are there."""
        nodes, edges = self.nodes.table(), self.edges.table()
        own = {"id": self.nodes.name("id"), "source": self.edges.name("source")}
        own["target"] = self.edges.name("target")
        present = {
            role: name
            for role, name in roles.items()
            if name in (nodes if role in ("text", "label") else edges).names
        }
        # Without edges, whether they usually have a direction.
        directed = self.directed > 0 if self.edges.records else self._default in _DIRECTED
        return GraphFile(kind, (self.file,), nodes, edges, own | present, facts, directed=directed)

    def _damaged(self, reason: str) -> DataError:
        reason = " ".join(reason.split())[:160]
        return DataError(f"{self.file}: expected {self.what}, found: {reason}; export it again")

    def _prolog(self) -> None:
        """Learn the encoding, and refuse entities, which can expand to any size."""
        started: list[str] = []

        def declared(version: str, encoding: str | None, standalone: int) -> None:
            self.encoding = (encoding or self.encoding).lower()

        def refuse(*_: object) -> None:
            raise DataError(
                f"{self.file}: expected plain {self.what}, found entity declarations; remove them"
            )

        parser = expat.ParserCreate()
        parser.XmlDeclHandler, parser.EntityDeclHandler = declared, refuse
        parser.StartElementHandler = lambda name, _: started.append(name)
        with self.file.open("rb") as stream:
            while (block := stream.read(_BLOCK)) and not started:
                if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    self.encoding = "utf-16"
                parser.Parse(block)

    def _start(self, name: str, element: Any) -> None:
        self._around.append(element)
        if len(self._around) > _DEPTH:
            raise self._damaged(f"elements in elements, {_DEPTH} deep")
        is_first = self.graphs == 1 and bool(self._directions)
        given = element.attrib
        if name == "gexf":
            self.version = given.get("version", "")[:8]
        elif name == "graph":
            direction = given.get("edgedefault", given.get("defaultedgetype", "undirected"))
            if self._directions:
                self.inner += is_first
            else:
                self.graphs += 1
                self._default = self._default or direction
                self.mode = given.get("mode", "static")
            self._directions.append(direction)
        elif name == "attributes":
            self._class = given["class"]
        elif name == "hyperedge" and is_first:
            # A hyperedge has no two ends; NetworkX refuses it, too.
            raise self._damaged("a hyperedge")
        elif name in ("node", "edge"):
            if self.what == "GEXF" and self.graphs > 1:
                raise self._damaged("several graphs")
            self.open.append(self._row(name, given) if is_first else None)

    def _row(self, name: str, given: dict[str, str]) -> dict[str, Any]:
        if name == "edge":
            direction = given.get("directed") or given.get("type") or self._directions[-1]
            self.directed += direction in _DIRECTED
        if self.what == "GraphML":
            # A label is what yEd draws, and no attribute.
            return (self.nodes if name == "node" else self.edges).add(given | {"label": ""})
        if name == "edge":
            return self.edges.add(given | {"weight": typed(given.get("weight", ""), "double")})
        outer = self.open[-1] if self.open else None
        parent = given.get("pid", (outer or {}).get("\0id", ""))
        self.inner += bool(parent)
        return self.nodes.add(given | {"pid": parent})

    def _end(self, name: str, element: Any) -> None:
        self._around.pop()
        if name in ("node", "edge"):
            record = self.open.pop()
            if record is not None:
                self._values(self.nodes if name == "node" else self.edges, record, element)
            if self._around:
                # What is read of it stays in its row.
                self._around[-1].remove(element)
        elif name == "graph":
            self._directions.pop()
        elif name in ("key", "attribute"):
            self._key(element.attrib, element.findtext("{*}default"))
        elif name == "creator":
            tools = (tool for tool in _TOOLS if tool.lower() in (element.text or "").lower())
            self.tool = next((f" of {tool}" for tool in tools), "")

    def _key(self, given: dict[str, str], default: str | None) -> None:
        """Declare an attribute."""
        drawing = given.get("yfiles.type", "")
        self.is_drawn = self.is_drawn or bool(drawing)
        name = given.get("attr.name", given.get("title", drawing or given["id"]))
        kind = given.get("attr.type", given.get("type", "string"))
        tables = {"node": (self.nodes,), "edge": (self.edges,), "all": (self.nodes, self.edges)}
        # "all" is what the specification of GraphML takes where a key names no domain.
        domain = given.get("for", "all") if self.what == "GraphML" else self._class
        self.keys["" if self.what == "GraphML" else f"{domain}s", given["id"]] = name, kind
        for rows in tables.get(domain, ()) if not drawing else ():
            rows.declare(name, "" if default is None else typed(default, kind))

    def _values(self, rows: _Rows, record: dict[str, Any], element: Any) -> None:
        """Store the attributes of a node or an edge; those in it have been removed."""
        if self.what == "GEXF":
            for value in element.iterfind(".//{*}attvalue"):
                # `for` was `id` in the first versions.
                key = value.get("for") or value.attrib["id"]
                self._put(rows, record, (rows.rows, key), value.attrib["value"])
            return
        for data in element.iterfind("{*}data"):
            # The drawing that yEd keeps as an attribute has elements in it.
            text = None if len(data) else data.text or ""
            self._put(rows, record, ("", data.attrib["key"]), text)
            for label in data.iter():
                if _local(label) in ("NodeLabel", "EdgeLabel") and (label.text or "").strip():
                    self.further_labels += "\0label" in record
                    record.setdefault("\0label", label.text)

    def _put(
        self, rows: _Rows, record: dict[str, Any], key: tuple[str, str], text: str | None
    ) -> None:
        # Gephi 0.7 writes weights as an attribute that it does not declare.
        usual = ("weight", "double") if key[0] and key[1] == "weight" else ("", "")
        name, kind = self.keys.get(key, usual)
        if key not in self.keys and not name:
            raise self._damaged(f"an attribute of the unknown key {key[1]!r:.80}")
        if text is not None:
            rows.put(record, name, typed(text, kind))


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


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
        whole, _, rest = text.partition(".")
        if whole.lstrip("-").isdecimal() and rest and not rest.strip("0"):
            return whole
        return "" if text.lower() == "nan" else text
    return text.lower() if kind in ("boolean", "bool") else text
