"""GEXF 1.2 and 1.3, as Gephi and NetworkX write it."""

from pathlib import Path

from dance_flwr.data.imports.columns import Rows, typed
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.data.imports.xml_reader import XmlReader

_DIRECTED = ("directed", "mutual")


def read_gexf(file: Path) -> GraphFile:
    """Return the graph in a GEXF file; nodes inside of nodes stand beside them, with their `pid`.

    Colours, sizes and places are ignored.
    """
    reader = _Reader(file)
    reader.read()
    if not reader.graphs:
        raise reader.damaged("no graph in it")
    nodes, edges = reader.nodes.columns(), reader.edges.columns()
    facts = {"encoding": reader.encoding}
    if reader.mode == "dynamic":
        facts["mode"] = "dynamic; values that change are lists"
    if reader.inside_others:
        facts["nodes inside of nodes"] = f"{reader.inside_others}, taken out"
    if 0 < reader.directed < reader.edges.size:
        facts["directed"] = f"{reader.directed} of {reader.edges.size} edges"
    roles = {"id": reader.nodes.name("id")}
    # The label of a node is its name on the screen, and its id where there is a text.
    text, label, kind = reader.nodes.name("label"), *map(reader.edges.name, ("label", "kind"))
    if text in nodes.names and "text" not in nodes.names:
        roles["text"] = text
    roles |= {end: reader.edges.name(end) for end in ("source", "target")}
    # What a parallel edge means is its kind, and before GEXF 1.3 its label.
    has_kind = kind in edges.names
    columns = {"relation": kind if has_kind else label, "description": label if has_kind else ""}
    columns["weight"] = next(
        (name for name in (reader.edges.name("weight"), "weight") if name in edges.names), ""
    )
    roles |= {role: name for role, name in columns.items() if name in edges.names}
    return GraphFile(
        f"GEXF {reader.version}{reader.tool}",
        (file,),
        nodes,
        edges,
        roles,
        facts,
        directed=reader.directed > 0 if reader.edges.size else reader.default in _DIRECTED,
    )


class _Reader(XmlReader):
    """Collects the nodes and edges.

    Attributes
    ----------
    nodes, edges : what was read; graphs : number of graphs
    version, mode, default : of the format, of the graph, and direction of edges that have none
    tool : " of " and the program that wrote the file, if it is known
    directed : number of edges with a direction; inside_others : number of nodes inside of nodes
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, "GEXF")
        self.nodes = Rows(file, "nodes", ("id", "label", "pid", "start", "end"), 1)
        self.edges = Rows(
            file,
            "edges",
            ("source", "target", "id", "label", "weight", "kind", "type", "start", "end"),
            2,
        )
        self.graphs = self.directed = self.inside_others = 0
        self.version = self.mode = self.tool = ""
        self.default = "undirected"
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}  # class, id -> name, type
        self._class = self._key = ""  # of the attribute that is being declared
        self._rows: list[tuple[Rows, int]] = []  # nodes and edges around

    def start(self, name: str, attributes: dict[str, str]) -> bool:
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
            self.nodes.meter.columns(len(self._keys))
            self._table().declare(title)
        elif name == "node":
            self._node(attributes)
        elif name == "edge":
            self._edge(attributes)
        elif name == "attvalue" and self._rows:
            self._value(attributes)
        return (self.around(), name) in (("attribute", "default"), ("meta", "creator"))

    def end(self, name: str, text: str | None, is_leaf: bool) -> None:
        if name in ("node", "edge"):
            self._rows.pop()
        elif name == "default" and text is not None and self._class in ("node", "edge"):
            title, kind = self._keys[self._class, self._key]
            self._table().declare(title, typed(text, kind))
        elif name == "creator" and text is not None:
            tools = (tool for tool in ("Gephi", "NetworkX") if tool.lower() in text.lower())
            self.tool = next((f" of {tool}" for tool in tools), "")

    def _table(self) -> Rows:
        return self.nodes if self._class == "node" else self.edges

    def _node(self, attributes: dict[str, str]) -> None:
        outer = self.nodes.fixed(self._rows[-1][1], "id") if self._rows else ""
        parent = attributes.get("pid", outer)
        self.inside_others += bool(parent)
        optional = (attributes.get(name, "") for name in ("start", "end"))
        row = self.nodes.add(attributes["id"], attributes.get("label", ""), parent, *optional)
        self._rows.append((self.nodes, row))

    def _edge(self, attributes: dict[str, str]) -> None:
        self.directed += attributes.get("type", self.default) in _DIRECTED
        weight = typed(attributes.get("weight", ""), "double")
        row = self.edges.add(
            *(attributes["source"], attributes["target"]),
            *(attributes.get("id", ""), attributes.get("label", ""), weight),
            *(attributes.get(name, "") for name in ("kind", "type", "start", "end")),
        )
        self._rows.append((self.edges, row))

    def _value(self, attributes: dict[str, str]) -> None:
        rows, row = self._rows[-1]
        # `for` was `id` in the first versions.
        key = attributes.get("for") or attributes["id"]
        name, kind = self._keys.get(
            ("node" if rows is self.nodes else "edge", key),
            # Gephi 0.7 writes weights as an attribute that it does not declare.
            ("weight", "double") if key == "weight" else ("", ""),
        )
        if not name:
            raise self.damaged(f"an attribute of the unknown key {key!r:.80}")
        rows.put(row, name, typed(attributes["value"], kind))
