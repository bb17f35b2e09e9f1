"""GraphML, as NetworkX, Gremlin, Gephi, yEd and LightRAG write it."""

from dataclasses import dataclass
from pathlib import Path

from dance_flwr.data.imports.columns import Rows, typed
from dance_flwr.data.imports.source import GraphFile
from dance_flwr.data.imports.xml_reader import XmlReader

_TRUE = {"true": True, "1": True, "false": False, "0": False}


def read_graphml(file: Path) -> GraphFile:
    """Return the first graph in a GraphML file; graphs inside of nodes are part of it.

    Raises
    ------
    DataError : as of `XmlReader.read`, or the file has hyperedges
    """
    reader = _Reader(file)
    reader.read()
    if not reader.graphs:
        raise reader.damaged("no graph in it")
    nodes, edges = reader.nodes.columns(), reader.edges.columns()
    dialect, columns = _dialect(reader)
    facts = {"encoding": reader.encoding}
    if reader.graphs > 1:
        facts["graphs"] = f"the first of {reader.graphs}"
    if 0 < reader.directed < reader.edges.size:
        facts["directed"] = f"{reader.directed} of {reader.edges.size} edges"
    if reader.inner:
        facts["graphs inside of nodes"] = f"{reader.inner}, their nodes and edges included"
    if reader.further_labels:
        facts["further labels left out"] = str(reader.further_labels)
    roles = {"id": reader.nodes.name("id")}
    roles |= {end: reader.edges.name(end) for end in ("source", "target")}
    for role, name in columns.items():
        if name in (nodes if role in ("text", "label") else edges).names:
            roles[role] = name
    return GraphFile(
        f"GraphML of {dialect}" if dialect else "GraphML",
        (file,),
        nodes,
        edges,
        roles,
        facts,
        directed=reader.directed > 0 if reader.edges.size else reader.directed_default,
    )


def _dialect(reader: "_Reader") -> tuple[str, dict[str, str]]:
    """Return the tool that wrote the file, if it is known, and its columns of roles."""
    keys, attributes = reader.keys, reader.nodes.attributes
    columns = {"weight": "weight"}
    if any(key.is_drawing for key in keys.values()):
        return "yEd", {
            **columns,
            "text": reader.nodes.name("label"),
            "relation": reader.edges.name("label"),
        }
    if {"labelV", "labelE"} & keys.keys():
        return "TinkerPop", {**columns, "label": "labelV", "relation": "labelE"}
    if {"entity_type", "description", "source_id"} <= attributes.keys():
        return "LightRAG", {
            **columns,
            "text": "description",
            "relation": "keywords",
            "description": "description",
        }
    if {"edgelabel", "edgeid"} & keys.keys():
        return "Gephi", {**columns, "text": "label", "relation": "Edge Label"}
    return "", columns


@dataclass
class _Key:
    """A declared attribute; `tables` are those of its domain."""

    name: str
    kind: str
    tables: tuple[Rows, ...]
    is_drawing: bool


class _Reader(XmlReader):
    """Collects the nodes and edges of the first graph.

    Attributes
    ----------
    nodes, edges : what was read
    keys : id -> declared attribute
    graphs, inner : numbers of graphs outside and inside of nodes
    directed : number of edges with a direction; directed_default : whether edges usually have one
    further_labels : number of drawn labels after the first of a node or an edge
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, "GraphML")
        self.nodes = Rows(file, "nodes", ("id", "label"), 1)
        self.edges = Rows(file, "edges", ("source", "target", "id", "label", "directed"), 2)
        self.keys: dict[str, _Key] = {}
        self.graphs = self.inner = self.directed = self.further_labels = 0
        self.directed_default = False
        self._defaults: list[bool] = []  # of the graphs around
        self._rows: list[tuple[Rows, int]] = []  # nodes and edges around
        self._key = _Key("", "", (), False)  # that is being read

    def start(self, name: str, attributes: dict[str, str]) -> bool:
        if name == "graph":
            self._graph(attributes.get("edgedefault", "undirected") == "directed")
        elif name == "key":
            self._declare(attributes)
        elif name == "default":
            return self.around() == "key"
        elif self.graphs != 1 or not self._defaults:
            return False
        elif name == "hyperedge":
            # A hyperedge has no two ends; NetworkX refuses it, too.
            raise self.damaged("a hyperedge")
        elif name == "node":
            self._rows.append((self.nodes, self.nodes.add(attributes["id"], "")))
        elif name == "edge":
            self._edge(attributes)
        elif name == "data" and self.around() in ("node", "edge"):
            if attributes["key"] not in self.keys:
                raise self.damaged(f"an attribute of the unknown key {attributes['key']!r:.80}")
            self._key = self.keys[attributes["key"]]
            return True
        return name in ("NodeLabel", "EdgeLabel") and bool(self._rows) and self.inside("data")

    def end(self, name: str, text: str | None, is_leaf: bool) -> None:
        if name == "graph":
            self._defaults.pop()
        elif name in ("node", "edge") and self._defaults and self.graphs == 1:
            self._rows.pop()
        elif text is None:
            return
        elif name == "default":
            for rows in self._key.tables:
                rows.declare(self._key.name, typed(text, self._key.kind))
        elif name == "data":
            # The drawing that yEd keeps as an attribute has elements in it.
            if is_leaf:
                rows, row = self._rows[-1]
                rows.put(row, self._key.name, typed(text, self._key.kind))
        elif text.strip():
            rows, row = self._rows[-1]
            if rows.fixed(row, "label"):
                self.further_labels += 1
            else:
                rows.set_fixed(row, "label", text)

    def _graph(self, directed: bool) -> None:
        if self._defaults:
            self.inner += self.graphs == 1
        else:
            self.graphs += 1
            self.directed_default = directed if self.graphs == 1 else self.directed_default
        self._defaults.append(directed)

    def _declare(self, attributes: dict[str, str]) -> None:
        # "all" is what the specification takes where a key names no domain.
        domain = attributes.get("for", "all")
        tables = {"node": (self.nodes,), "edge": (self.edges,), "all": (self.nodes, self.edges)}
        drawing = attributes.get("yfiles.type", "")
        name = attributes.get("attr.name", drawing or attributes["id"])
        kind = attributes.get("attr.type", "string")
        self._key = _Key(name, kind, () if drawing else tables.get(domain, ()), bool(drawing))
        self.keys[attributes["id"]] = self._key
        self.nodes.meter.columns(len(self.keys))
        for rows in self._key.tables:
            rows.declare(name)

    def _edge(self, attributes: dict[str, str]) -> None:
        direction = attributes.get("directed", "")
        self.directed += _TRUE.get(direction, self._defaults[-1])
        ends = attributes["source"], attributes["target"]
        row = self.edges.add(*ends, attributes.get("id", ""), "", direction)
        self._rows.append((self.edges, row))
