"""NetworkX formats with a text attribute: node-link JSON, and GraphML, read element by element."""

from dataclasses import dataclass, field
from pathlib import Path
from sys import getsizeof
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from dance_flwr.data.graphs.folder import edge_ends
from dance_flwr.data.graphs.limits import Meter, listed
from dance_flwr.data.graphs.tables import as_strings
from dance_flwr.data.imports.imported import Incoming, rows_of
from dance_flwr.data.imports.json_files import read_json, to_string
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.source import EdgeList, GraphFile
from dance_flwr.errors import DataError

# No graph is nested so deep, and the list of open elements must not grow with the file.
_GRAPHML_BLOCK, _DEPTH = 1 << 16, 1000
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("int", "integer", "long"), int),
    **dict.fromkeys(("float", "double", "real"), float),
    **dict.fromkeys(("boolean", "bool"), lambda text: _TRUTH[text.lower()]),
}
_NODE, _EDGE = 512, 64  # bytes in memory, without the texts


@dataclass
class Network:
    """What a GraphML file holds.

    Attributes
    ----------
    ids : of the nodes, in order
    records : attributes of each node
    ends : source and target id of each edge
    """

    ids: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))


def read_graphml(file: Path) -> Network:
    """Return the nodes and edges of the first graph in a GraphML file.

    Raises
    ------
    DataError : the file is not GraphML, declares entities, or passes a bound
    """
    reader = _Reader(file)
    try:
        with file.open("rb") as stream:
            while block := stream.read(_GRAPHML_BLOCK):
                reader.feed(block)
        reader.feed(b"", last=True)
    except (expat.ExpatError, LookupError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise reader.damaged(reason) from error
    if not reader.graphs:
        raise reader.damaged("no graph in it")
    return reader.network


class _Reader:
    """Follows the elements of a GraphML file.

    Attributes
    ----------
    network : what was read so far; graphs : number of graphs that are not inside another
    """

    def __init__(self, file: Path) -> None:
        self.file, self.network, self.graphs = file, Network(), 0
        self._nodes, self._edges = Meter(file), Meter(file, "edges")
        self._keys: dict[str, tuple[str, str]] = {}  # id -> name and type of a node's attribute
        self._open: list[str] = []  # names of the elements around
        self._records: list[dict[str, Any]] = []  # of the nodes around
        self._key = ""  # of the attribute that is being read
        self._text: list[str] | None = None
        self._length = self._fed = 0
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        # One call per text, which expat otherwise splits at every line break.
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity  # nested entities can expand to any size

    def feed(self, block: bytes, last: bool = False) -> None:
        """Parse a part of the file."""
        self._fed += len(block)
        self._parser.Parse(block, last)
        # What expat holds back: a tag that never ends is refused before it fills the memory.
        self._nodes.line(self._fed - self._parser.CurrentByteIndex - _GRAPHML_BLOCK)

    def damaged(self, reason: str) -> DataError:
        """Return the error for a file that is not GraphML."""
        return DataError(f"{self.file}: expected GraphML, found: {reason}; export it again")

    def _entity(self, *_: object) -> None:
        raise DataError(
            f"{self.file}: expected plain GraphML, found entity declarations; remove them"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        if name == "graph" and "graph" not in self._open:
            self.graphs += 1
        self._open.append(name)
        if len(self._open) > _DEPTH:
            raise self.damaged(f"elements in elements, {_DEPTH} deep")
        if name == "key" and attributes.get("for", "node") in ("node", "all"):
            self._keys[attributes["id"]] = (
                attributes.get("attr.name", attributes.get("yfiles.type", attributes["id"])),
                attributes.get("attr.type", "string"),
            )
            self._nodes.columns(len(self._keys))
        # As NetworkX does: the first graph is read, and a hyperedge, which has no two ends,
        # refused.
        elif self.graphs > 1 or "graph" not in self._open:
            return
        elif name == "hyperedge":
            raise self.damaged("a hyperedge")
        elif name == "node":
            self._node(attributes["id"])
        elif name == "edge":
            self._edge(attributes["source"], attributes["target"])
        elif self._records and (self._inside("node", "data") or self._is_yed_label(name)):
            self._key = attributes.get("key", "") if name == "data" else self._key
            self._text, self._length = [], 0

    def _inside(self, *names: str) -> bool:
        return tuple(self._open[-len(names) :]) == names

    def _is_yed_label(self, name: str) -> bool:
        """Whether an element is the label that yEd draws on a node."""
        # yEd keeps a label in its drawing, not in an attribute.
        return name == "NodeLabel" and "data" in self._open and "label" not in self._records[-1]

    def _node(self, name: str) -> None:
        self.network.ids.append(name)
        self.network.records.append({})
        self._records.append(self.network.records[-1])
        self._nodes.rows(1)
        self._nodes.memory(_NODE + getsizeof(name))

    def _edge(self, *ends: str) -> None:
        for column, end in zip(self.network.ends, ends, strict=True):
            column.append(end)
        self._edges.rows(1)
        self._edges.memory(_EDGE + sum(map(getsizeof, ends)))

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)
            self._length += len(text)
            self._nodes.characters(self._length)

    def _end(self, tag: str) -> None:
        name = self._open.pop()
        if name == "node" and self._records and self.graphs == 1:
            self._records.pop()
        elif self._text is not None and name in ("data", "NodeLabel"):
            self._attribute(name, "".join(self._text))
            self._text = None

    def _attribute(self, element: str, text: str) -> None:
        """Store the attribute that ends here."""
        if element == "NodeLabel":
            name, kind = "label", "string"
        elif self._key in self._keys:
            name, kind = self._keys[self._key]
        else:
            raise KeyError(f"an attribute of the unknown key {self._key!r:.80}")
        # An empty string is a text, but no number.
        value = _TYPES.get(kind, str)(text) if kind == "string" or text.strip() else None
        self._records[-1][name] = value
        self._nodes.memory(getsizeof(value))


def graphml(file: Path, text: str = "text", label: str = "label") -> Incoming:
    """Return the graph of a GraphML file; an attribute `split`, if present, is the split.

    Raises
    ------
    DataError : the file is not GraphML, declares entities, passes a bound, or no node has the text
        attribute
    """
    network = read_graphml(file)
    columns = _columns(network.records, text, label, str(file))

    def ends(known: Any) -> EdgeList:
        names = ("source", "target")
        arrays = [pa.array(values, pa.large_string()) for values in network.ends]
        columns = dict(zip(names, arrays, strict=True))
        return EdgeList(*edge_ends(columns, known, str(file), "the graph"))

    return Incoming("GraphML", (file,), rows_of(Meter(file), network.ids, *columns), ends)


def node_link(file: Path, text: str = "text", label: str = "label", key: str = "id") -> Incoming:
    """Return the graph of a node-link JSON file of NetworkX: `nodes` and `links` (or `edges`).

    Raises
    ------
    DataError : the file is not node-link JSON, passes a bound, a node has no id, or no node has the
        text attribute
    """
    content = read_json(file, "node-link JSON", "export it again")
    links = (
        next((content[k] for k in ("links", "edges") if k in content), None)
        if isinstance(content, dict)
        else None
    )
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if (
        not isinstance(nodes, list)
        or not isinstance(links, list)
        or not all(isinstance(n, dict) for n in nodes)
    ):
        raise DataError(
            f"{file}: expected node-link JSON with lists 'nodes' and 'links', found none; "
            "export it again"
        )
    Meter(file, "edges").rows(len(links))
    missing = next((i for i, node in enumerate(nodes) if node.get(key) in (None, "")), None)
    if missing is not None:
        raise DataError(
            f"{file} node {missing + 1}: expected an id in {key!r}, found none; name it with --id"
        )
    ids = [to_string(node[key]) or "" for node in nodes]
    columns = {name: _link_ends(links, name, file) for name in ("source", "target")}
    rows = rows_of(Meter(file), ids, *_columns(nodes, text, label, str(file)))
    return Incoming(
        "node-link JSON",
        (file,),
        rows,
        lambda known: EdgeList(*edge_ends(columns, known, str(file), "the graph")),
    )


def _link_ends(links: list[Any], name: str, file: Path) -> Any:
    """Return one end of every link as strings; ends must be all strings or all integers."""
    for kind in (pa.large_string(), pa.int64()):
        try:
            table = pa.array(links, pa.struct([(name, kind)]))
        except (pa.ArrowException, TypeError, UnicodeError, OverflowError):
            continue
        return as_strings(table.field(0), name, str(file))
    raise DataError(
        f"{file}: expected a string or an integer as {name!r} of every link, found other values; "
        "convert them"
    )


def _columns(
    records: list[dict[str, Any]], text: str, label: str, where: str
) -> tuple[list[str], list[str], list[str]]:
    """Return the texts, labels and splits of the nodes; a missing attribute becomes ""."""
    if not any(text in record for record in records):
        names = listed({name: None for record in records for name in record}) or "no attribute"
        raise DataError(
            f"{where}: expected a node attribute {text!r}, found {names}; name it with --text"
        )
    texts, labels, splits = (
        [to_string(record.get(name)) or "" for record in records] for name in (text, label, "split")
    )
    return texts, labels, splits


def read_network(path: Path, options: Options) -> GraphFile | Incoming | None:
    """Return the graph in a file or folder of a network; None if it is none by name and content."""
    text, label = options.text or "text", options.label or "label"
    if path.suffix in (".pt", ".pth"):
        from dance_flwr.data.imports import pickles

        return pickles.pyg_graph(path, options.split_index, text=options.text, label=options.label)
    if path.suffix == ".graphml":
        return graphml(path, text, label)
    if path.suffix == ".json":
        return node_link(path, text, label, options.id or "id")
    return None
