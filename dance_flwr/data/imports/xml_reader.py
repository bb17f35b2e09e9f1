"""Elements of an XML file one after the other, in bounded memory, whatever a stranger wrote."""

from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

from dance_flwr.data.graphs.limits import Meter
from dance_flwr.errors import DataError
from dance_flwr.terminal import bar

_BLOCK = 1 << 16
# No graph is nested so deep, and the list of open elements must not grow with the file.
_DEPTH = 1000


@dataclass(slots=True)
class _Element:
    """An element around the current place; `text` is None where nobody asks for it."""

    name: str
    text: list[str] | None = None
    length: int = 0
    is_leaf: bool = True


class XmlReader:
    """Calls `start` and `end` for every element of a file.

    NetworkX reads both formats of graphs as one tree, which takes many times the size of the file
    and expands entities, ignores defaults, and refuses graphs with directed and undirected edges.

    Attributes
    ----------
    file : the file; encoding : what it declares
    """

    def __init__(self, file: Path, what: str) -> None:
        self.file, self.encoding = file, "utf-8"
        self._what, self._meter, self._fed = what, Meter(file), 0
        self._open: list[_Element] = []
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        # One call per text, which expat otherwise splits at every line break.
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declared
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity  # nested entities can expand to any size

    def start(self, name: str, attributes: dict[str, str]) -> bool:
        """Handle the start of an element, named without its namespace.

        Returns
        -------
        Whether `end` is to get its text.
        """
        raise NotImplementedError

    def end(self, name: str, text: str | None, is_leaf: bool) -> None:
        """Handle the end of an element.

        Parameters
        ----------
        text : of the element up to the first element in it; None if `start` did not ask for it
        is_leaf : whether there is no element in it
        """
        raise NotImplementedError

    def around(self, place: int = 1) -> str:
        """Return the name of the element around the current one, or of the `place`-th around."""
        return self._open[-1 - place].name if place < len(self._open) else ""

    def inside(self, name: str) -> bool:
        """Return whether an element of this name is around the current one."""
        return any(element.name == name for element in self._open[:-1])

    def read(self) -> None:
        """Read the whole file.

        Raises
        ------
        DataError : the file is not XML, an element lacks an attribute, or it passes a bound
        """
        try:
            size = self.file.stat().st_size
            with self.file.open("rb") as stream, bar("reading", size, "bytes") as shown:
                while block := stream.read(_BLOCK):
                    if not self._fed and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        self.encoding = "utf-16"
                    self._feed(block)
                    shown.move(self._fed)
            self._feed(b"", last=True)
        except KeyError as error:
            raise self.damaged(f"an element without {error}") from error
        except (expat.ExpatError, LookupError, ValueError, OSError) as error:
            raise self.damaged(str(error) or type(error).__name__) from error

    def damaged(self, reason: str) -> DataError:
        """Return the error for a file of another content."""
        reason = " ".join(reason.split())[:160]
        return DataError(f"{self.file}: expected {self._what}, found: {reason}; export it again")

    def _feed(self, block: bytes, last: bool = False) -> None:
        self._fed += len(block)
        self._parser.Parse(block, last)
        # What expat holds back: a tag that never ends is refused before it fills the memory.
        self._meter.line(self._fed - self._parser.CurrentByteIndex - _BLOCK)

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = (encoding or self.encoding).lower()

    def _entity(self, *_: object) -> None:
        raise DataError(
            f"{self.file}: expected plain {self._what}, found entity declarations; remove them"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._open:
            self._open[-1].is_leaf = False
        element = _Element(tag.rpartition(" ")[2])
        self._open.append(element)
        if len(self._open) > _DEPTH:
            raise self.damaged(f"elements in elements, {_DEPTH} deep")
        for value in attributes.values():
            self._meter.characters(len(value))
        if self.start(element.name, attributes):
            element.text = []

    def _characters(self, text: str) -> None:
        element = self._open[-1]
        if element.text is not None and element.is_leaf:
            element.text.append(text)
            element.length += len(text)
            self._meter.characters(element.length)

    def _end(self, _: str) -> None:
        element = self._open[-1]
        text = None if element.text is None else "".join(element.text)
        self.end(element.name, text, element.is_leaf)
        self._open.pop()
