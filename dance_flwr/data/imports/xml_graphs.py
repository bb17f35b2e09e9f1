"""GraphML and GEXF as NetworkX, Gremlin, Gephi, yEd and LightRAG write them.

NetworkX's own readers ignore defaults of keys and refuse graphs with directed and undirected edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from dance_flwr.data.imports.layouts import GraphFile, graphml_layout
from dance_flwr.data.imports.memory_tables import Rows, typed
from dance_flwr.errors import DataError
from dance_flwr.terminal import bar

_HEAD, _BLOCK = 1 << 12, 1 << 16
_DEPTH = 1000  # no graph is nested so deep
_DIRECTED = ("true", "1", "directed", "mutual")


def format_of(file: Path) -> str:
    """Return ".graphml" or ".gexf" for a file in XML, by its first element; "" for others."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    return next((s for s in (".graphml", ".gexf") if b"<" + s[1:].encode() in head), "")


@dataclass
class _Open:
    """An element around the current place, and the row that it makes."""

    name: str
    record: dict[str, Any] = field(default_factory=dict)
    directed: bool = False


class _Reader:
    """Elements of a file one after the other.

    Attributes
    ----------
    nodes, edges : what was read; around : the open elements, the innermost last
    encoding : what the file declares
    """

    what = ""

    def __init__(self, file: Path, nodes: tuple[str, ...], edges: tuple[str, ...]) -> None:
        self.file, self.encoding = file, "utf-8"
        self.nodes, self.edges = Rows(file, "nodes", nodes, 1), Rows(file, "edges", edges, 2)
        self.graphs = self.directed = self.inner = 0
        self.default = "undirected"
        self.around: list[_Open] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element, named without its namespace."""
        raise NotImplementedError

    def end(self, name: str, element: Any) -> None:
        """Handle the end of an element, whose text is that up to the first element in it."""
        raise NotImplementedError

    def read(self) -> None:
        """Read the whole file.

        Raises
        ------
        DataError : the file is not XML, an element lacks an attribute, or it exceeds a bound
        """
        try:
            self._prolog()
            with bar("reading"):
                for event, element in self._events():
                    name = element.tag.rpartition("}")[2]
                    if event == "start":
                        self.around.append(_Open(name))
                        if len(self.around) > _DEPTH:
                            raise self.damaged(f"elements in elements, {_DEPTH} deep")
                        self.start(name, element.attrib)
                    else:
                        self.end(name, element)
                        self.around.pop()
        except KeyError as error:
            raise self.damaged(f"an element without {error}") from error
        except (
            ElementTree.ParseError,
            expat.ExpatError,
            LookupError,
            ValueError,
            OSError,
        ) as error:
            raise self.damaged(str(error) or type(error).__name__) from error
        if not self.graphs:
            raise self.damaged("no graph in it")

    def damaged(self, reason: str) -> DataError:
        """Return the error for a file of another content."""
        reason = " ".join(reason.split())[:160]
        return DataError(f"{self.file}: expected {self.what}, found: {reason}; export it again")

    def row(self) -> dict[str, Any]:
        """Return the row of the innermost node or edge around."""
        return next(o.record for o in reversed(self.around[:-1]) if o.name in ("node", "edge"))

    def inside(self, *names: str) -> bool:
        """Return whether an element of one of these names is around the current one."""
        return any(element.name in names for element in self.around[:-1])

    def _events(self) -> Iterator[tuple[str, Any]]:
        parents: list[Any] = []
        for event, element in ElementTree.iterparse(self.file, ("start", "end")):
            if event == "start":
                parents.append(element)
                yield event, element
                continue
            yield event, element
            parents.pop()
            element.clear()
            # What is read of a node stays in its row.
            if parents and element.tag.endswith(("node", "edge")):
                parents[-1].remove(element)

    def _prolog(self) -> None:
        """Learn the encoding, and refuse entities, which can expand to any size."""
        parser = expat.ParserCreate()
        started: list[str] = []
        parser.XmlDeclHandler = self._declared
        parser.EntityDeclHandler = self._entity
        parser.StartElementHandler = lambda name, _: started.append(name)
        with self.file.open("rb") as stream:
            while (block := stream.read(_BLOCK)) and not started:
                if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    self.encoding = "utf-16"
                parser.Parse(block)

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = (encoding or self.encoding).lower()

    def _entity(self, *_: object) -> None:
        raise DataError(
            f"{self.file}: expected plain {self.what}, found entity declarations; remove them"
        )

    def facts(self) -> dict[str, str]:
        """Return what is said about the file."""
        facts = {"encoding": self.encoding}
        if 0 < self.directed < len(self.edges.records):
            facts["directed"] = f"{self.directed} of {len(self.edges.records)} edges"
        return facts

    def is_directed(self) -> bool:
        """Return whether an edge has a direction; without edges, whether they usually have one."""
        return self.directed > 0 if self.edges.records else self.default in _DIRECTED


def read_graphml(file: Path) -> GraphFile:
    """Return the first graph in a GraphML file; graphs inside of nodes are part of it.

    Raises
    ------
    DataError : the file is damaged, or has hyperedges
    """
    reader = _GraphML(file, ("id", "label"), ("source", "target", "id", "label", "directed"))
    reader.read()
    nodes, edges = reader.nodes, reader.edges
    facts = reader.facts()
    if reader.graphs > 1:
        facts["graphs"] = f"the first of {reader.graphs}"
    if reader.inner:
        facts["graphs inside of nodes"] = f"{reader.inner}, their nodes and edges included"
    if reader.further_labels:
        facts["further labels left out"] = str(reader.further_labels)
    kind, columns = graphml_layout(set(reader.keys), set(nodes.attributes), reader.is_drawn)
    tables = nodes.table(), edges.table()
    own = {"id": nodes.name("id"), **{end: edges.name(end) for end in ("source", "target")}}
    drawn = {"text": nodes.name("label"), "relation": edges.name("label")}
    roles = own | {
        role: column
        for role, name in columns.items()
        # "@" is yEd's label, which is drawn and no attribute.
        if (column := drawn[role] if name == "@" else name)
        in tables[role not in ("text", "label")].names
    }
    return GraphFile(kind, (file,), *tables, roles, facts, directed=reader.is_directed())


class _GraphML(_Reader):
    """Collects the nodes and edges of the first graph.

    Attributes
    ----------
    keys : id -> (name, type, tables of its domain) of each declared attribute
    is_drawn : whether a key holds the drawing of yEd
    further_labels : number of drawn labels after the first of a node or an edge
    """

    what = "GraphML"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.keys: dict[str, tuple[str, str, tuple[Rows, ...]]] = {}
        self.is_drawn, self.further_labels = False, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        here = self.around[-1]
        if name == "graph":
            here.directed = attributes.get("edgedefault") == "directed"
            if self.inside("graph"):
                self.inner += self.graphs == 1
            else:
                self.graphs += 1
                if self.graphs == 1:
                    self.default = str(attributes.get("edgedefault"))
        elif name == "key":
            self._declare(attributes)
        elif self.graphs != 1 or not self.inside("graph"):
            return
        elif name == "hyperedge":
            # A hyperedge has no two ends; NetworkX refuses it, too.
            raise self.damaged("a hyperedge")
        elif name == "node":
            here.record = self.nodes.add(id=attributes["id"])
        elif name == "edge":
            direction = attributes.get("directed", "")
            around = next(o.directed for o in reversed(self.around) if o.name == "graph")
            self.directed += direction in _DIRECTED if direction else around
            ends = {"source": attributes["source"], "target": attributes["target"]}
            here.record = self.edges.add(**ends, id=attributes.get("id", ""), directed=direction)

    def end(self, name: str, element: Any) -> None:
        text = element.text or ""
        if name == "default" and self.around[-2].name == "key":
            title, kind, tables = list(self.keys.values())[-1]
            for rows in tables:
                rows.declare(title, typed(text, kind))
        elif self.graphs != 1 or not self.inside("node", "edge"):
            return
        elif name == "data" and self.around[-2].name in ("node", "edge"):
            if element.attrib["key"] not in self.keys:
                raise self.damaged(f"an attribute of the unknown key {element.attrib['key']!r:.80}")
            title, kind, _ = self.keys[element.attrib["key"]]
            # The drawing that yEd keeps as an attribute has elements in it.
            if not len(element):
                rows = self.nodes if self.around[-2].name == "node" else self.edges
                rows.put(self.row(), title, typed(text, kind))
        elif name in ("NodeLabel", "EdgeLabel") and self.inside("data") and text.strip():
            self.further_labels += "\0label" in self.row()
            self.row().setdefault("\0label", text)

    def _declare(self, attributes: dict[str, str]) -> None:
        # "all" is what the specification takes where a key names no domain.
        domain = attributes.get("for", "all")
        tables = {"node": (self.nodes,), "edge": (self.edges,), "all": (self.nodes, self.edges)}
        drawing = attributes.get("yfiles.type", "")
        self.is_drawn = self.is_drawn or bool(drawing)
        name = attributes.get("attr.name", drawing or attributes["id"])
        of = () if drawing else tables.get(domain, ())
        self.keys[attributes["id"]] = name, attributes.get("attr.type", "string"), of
        for rows in of:
            rows.declare(name)


def read_gexf(file: Path) -> GraphFile:
    """Return the graph in a GEXF file; nodes inside of nodes stand beside them, with their `pid`.

    Colours, sizes and places are ignored.
    """
    reader = _GEXF(
        file,
        ("id", "label", "pid", "start", "end"),
        ("source", "target", "id", "label", "weight", "kind", "type", "start", "end"),
    )
    reader.read()
    nodes, edges = reader.nodes, reader.edges
    facts = reader.facts()
    if reader.mode == "dynamic":
        facts["mode"] = "dynamic; values that change are lists"
    if reader.inner:
        facts["nodes inside of nodes"] = f"{reader.inner}, taken out"
    tables = nodes.table(), edges.table()
    roles = {"id": nodes.name("id")}
    # The label of a node is its name on the screen, and its id where there is a text.
    text, label, kind = nodes.name("label"), edges.name("label"), edges.name("kind")
    if text in tables[0].names and "text" not in tables[0].names:
        roles["text"] = text
    roles |= {end: edges.name(end) for end in ("source", "target")}
    # What a parallel edge means is its kind, and before GEXF 1.3 its label.
    has_kind = kind in tables[1].names
    columns = {"relation": kind if has_kind else label, "description": label if has_kind else ""}
    columns["weight"] = next(
        (name for name in (edges.name("weight"), "weight") if name in tables[1].names), ""
    )
    roles |= {role: name for role, name in columns.items() if name in tables[1].names}
    version = f"GEXF {reader.version}{reader.tool}"
    return GraphFile(version, (file,), *tables, roles, facts, directed=reader.is_directed())


class _GEXF(_Reader):
    """Collects the nodes and edges.

    Attributes
    ----------
    version, mode : of the format and of the graph
    tool : " of " and the program that wrote the file, if it is known
    """

    what = "GEXF"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.version = self.mode = self.tool = ""
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}  # class, id -> name, type
        self._class = self._key = ""  # of the attribute that is being declared

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "gexf":
            self.version = attributes.get("version", "")[:8]
        elif name == "graph":
            self.graphs += 1
            self.mode = attributes.get("mode", "static")
            self.default = attributes.get("defaultedgetype", self.default)
        elif self.graphs > 1:
            raise self.damaged("several graphs")
        elif name == "attributes":
            self._class = attributes["class"]
        elif name == "attribute" and self._class in ("node", "edge"):
            self._key = attributes["id"]
            title = attributes.get("title", self._key)
            self._keys[self._class, self._key] = title, attributes.get("type", "string")
            self._declared_table().declare(title)
        elif name in ("node", "edge"):
            self._row(name, attributes)
        elif name == "attvalue" and self.inside("node", "edge"):
            self._value(attributes)

    def end(self, name: str, element: Any) -> None:
        text, outer = element.text or "", self.around[-2].name if len(self.around) > 1 else ""
        if (outer, name) == ("attribute", "default") and self._class in ("node", "edge"):
            title, kind = self._keys[self._class, self._key]
            self._declared_table().declare(title, typed(text, kind))
        elif (outer, name) == ("meta", "creator"):
            tools = (tool for tool in ("Gephi", "NetworkX") if tool.lower() in text.lower())
            self.tool = next((f" of {tool}" for tool in tools), "")

    def _declared_table(self) -> Rows:
        return self.nodes if self._class == "node" else self.edges

    def _row(self, name: str, attributes: dict[str, str]) -> None:
        def given(*names: str) -> dict[str, str]:
            return {name: attributes.get(name, "") for name in names}

        if name == "node":
            outer = self.row().get("\0id", "") if self.inside("node", "edge") else ""
            parent = attributes.get("pid", outer)
            self.inner += bool(parent)
            own = {"id": attributes["id"], "pid": parent, **given("label", "start", "end")}
            self.around[-1].record = self.nodes.add(**own)
            return
        self.directed += attributes.get("type", self.default) in _DIRECTED
        own = {"source": attributes["source"], "target": attributes["target"]}
        own |= given("id", "label", "kind", "type", "start", "end")
        own["weight"] = typed(attributes.get("weight", ""), "double")
        self.around[-1].record = self.edges.add(**own)

    def _value(self, attributes: dict[str, str]) -> None:
        outer = next(o.name for o in reversed(self.around) if o.name in ("node", "edge"))
        # `for` was `id` in the first versions.
        key = attributes.get("for") or attributes["id"]
        # Gephi 0.7 writes weights as an attribute that it does not declare.
        usual = ("weight", "double") if key == "weight" else ("", "")
        name, kind = self._keys.get((outer, key), usual)
        if not name:
            raise self.damaged(f"an attribute of the unknown key {key!r:.80}")
        rows = self.nodes if outer == "node" else self.edges
        rows.put(self.row(), name, typed(attributes["value"], kind))
