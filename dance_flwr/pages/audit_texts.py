"""Source texts as a page holds them: every character as it is, spans in units of the browser.

Spans count characters, as Python does. A browser counts UTF-16 units, in which a character above
U+FFFF is two: offsets are converted here, where single surrogates are one character too.
"""

import unicodedata
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

_BLOCK = 400_000  # characters of texts that a block of the page holds, about
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_USUAL = "\n\t"


def units(text: str, place: int) -> int:
    """Return the number of UTF-16 units before a character."""
    return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


def span_sha256(text: str, start: int, end: int) -> str:
    """Return the sha256 of the UTF-8 text of a span, hexadecimal, as packs keep it."""
    return sha256(text[start:end].encode("utf-8", "surrogatepass")).hexdigest()


def unseen(text: str) -> str:
    """Return which characters of a text do not show or reorder others, and how often; "" = none."""
    counts = {
        char: text.count(char)
        for char in set(text)
        if unicodedata.category(char) in _UNSEEN and char not in _USUAL
    }
    return ", ".join(f"U+{ord(char):04X}: {counts[char]:,}" for char in sorted(counts))


class TextBlocks:
    """Texts of a page, each once, in blocks that open when they are shown.

    Parameters
    ----------
    texts : of all nodes of the client
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._places: dict[int, tuple[int, int]] = {}
        self._blocks: list[list[str]] = []
        self._room = 0

    def place(self, node: int) -> tuple[int, int]:
        """Return block and position of a node's text, which enters the page if it is new."""
        if node not in self._places:
            text = self._texts[node]
            if self._room < len(text) or not self._blocks:
                self._blocks.append([])
                self._room = _BLOCK
            self._blocks[-1].append(text)
            self._room -= len(text)
            self._places[node] = len(self._blocks) - 1, len(self._blocks[-1]) - 1
        return self._places[node]

    def data(self) -> dict[str, Any]:
        """Return the blocks by the names under which the page unpacks them."""
        return {f"texts-{number}": block for number, block in enumerate(self._blocks)}

    def __len__(self) -> int:
        return len(self._places)
