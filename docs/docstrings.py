"""Sections of docstrings as lists, for the reference pages of `mkdocs.yml`.

Docstrings here say `name : what it is`; types are in the signature. A parser of NumPy's format
would take the words after the colon for a type.
"""

import re
from typing import Any

from griffe import Extension, Object

_SECTION = re.compile(r"^([A-Z][\w ]*)\n-{3,}$", re.MULTILINE)
_EXAMPLE = re.compile(r"^(>>> .*(?:\n.+)*)", re.MULTILINE)  # up to an empty line
_NEXT_NAME = re.compile(r"; (?=[\w*]+(?:, [\w*]+)* : )")


class Docstrings(Extension):
    """Rewrites every docstring that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Replace the text of one docstring."""
        if obj.docstring:
            obj.docstring.value = as_lists(obj.docstring.value)


def as_lists(text: str) -> str:
    """Return Markdown of a docstring: its text, then a heading and a list for each section."""
    first, *rest = _SECTION.split(_EXAMPLE.sub(r"```pycon\n\1\n```", text))
    parts = [first.strip()]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        lines = [line for item in re.split(r"\n(?=\S)", body.strip()) for line in _items(item)]
        parts.append(f"**{title}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _items(item: str) -> list[str]:
    """Return `name : text; other : text` as one line of a list each."""
    return [f"- {_named(part)}" for part in _NEXT_NAME.split(" ".join(item.split()))]


def _named(part: str) -> str:
    name, colon, text = part.partition(" : ")
    return f"`{name}`: {text}" if colon else part
