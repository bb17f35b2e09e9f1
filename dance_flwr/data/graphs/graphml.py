"""GraphML, read element by element: no tree, no entities, nothing from other files."""

from dataclasses import dataclass, field
from pathlib import Path
from sys import getsizeof
from typing import Any
from xml.parsers import expat

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.errors import DataError

_BLOCK, _DEPTH = 1 << 16, 1000
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


def read(file: Path) -> Network:
    """Return the nodes and edges of the first graph in a GraphML file.

    Raises
    ------
    DataError : the file is not GraphML, declares entities, or passes a bound
    """
    reader = _Reader(file)
    try:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
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
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity  # nested entities can expand to any size

    def feed(self, block: bytes, last: bool = False) -> None:
        """Parse a part of the file."""
        self._fed += len(block)
        self._parser.Parse(block, last)
        self._nodes.line(self._fed - self._parser.CurrentByteIndex - _BLOCK)

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
        value = _TYPES.get(kind, str)(text) if kind == "string" or text.strip() else None
        self._records[-1][name] = value
        self._nodes.memory(getsizeof(value))
