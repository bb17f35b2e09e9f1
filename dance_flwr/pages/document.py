"""The shell of every page: a self-contained HTML file that makes no network requests.

Templates are Jinja2 with autoescape. Scripts and styles are those of `static/`, inline, and the
page's Content-Security-Policy names their hashes: the browser runs no other, whatever the data say.
Data lie in inert blocks, compressed; `base.js` unpacks them and writes text as text.
"""

import base64
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dance_flwr import __version__
from dance_flwr.config.paths import check_out
from dance_flwr.disk import atomic_file
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line

_GENERATOR = f'<meta name="generator" content="dance-flwr {__version__}">'
_OURS = re.compile(rb'<meta name="generator" content="dance-flwr [^"]*">')
_IN_BLOCK = 64  # numbers of a block; `base.js` has it too
_HEAD = 2048  # bytes, in which a page names its generator


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes
    ----------
    template : name in `templates/`; it extends `base.html.j2`
    title : title of the window
    facts : variables of the template; every text is escaped
    data : content of data blocks by name, which `unpack(name)` of `base.js` returns. Each block is
        compressed separately, so that a page unpacks only what it shows
    scripts, styles : names in `static/`, after `base.js` and `base.css`
    """

    template: str
    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()

    def html(self) -> bytes:
        """Return the page in UTF-8; the same facts and data give the same bytes."""
        facts = {
            **self.facts,
            "title": self.title,
            "generator": _GENERATOR,
            "script": "\n".join(map(static, ("base.js", *self.scripts))),
            "style": "\n".join(map(static, ("base.css", *self.styles))),
            "data": self.data,
        }
        text = environment().get_template(self.template).render(facts)
        # Half of a surrogate pair has no UTF-8; a browser shows the reference as U+FFFD.
        return text.encode("utf-8", "xmlcharrefreplace")

    def write(self, path: Path) -> None:
        """Write the page atomically, for its owner alone from its first byte.

        Raises
        ------
        UserError : `path` exists and is no page of this program, or cannot be created
        """
        content = self.html()
        check_replaceable(path)
        with atomic_file(path) as file:
            file.write(content)


@cache
def environment() -> Environment:
    """Return the environment of all templates, with escaping and without undefined names."""
    made = Environment(
        loader=PackageLoader("dance_flwr.pages"),
        autoescape=True,
        # A misspelt name in a template raises instead of leaving a gap.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"prose": prose, "counted": counted, "packed": packed, "hashed": hashed}
    made.filters["line"] = partial(one_line, marks=True)
    return made


def prose(text: str) -> Markup:
    """Return a text in HTML, with the parts between backticks as code.

    Examples
    --------
    >>> prose("`a < b`, or more")
    Markup('<code>a &lt; b</code>, or more')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def static(name: str) -> str:
    """Return a file of `static/`."""
    return (files("dance_flwr.pages") / "static" / name).read_text("utf-8")


def hashed(text: str) -> Markup:
    """Return the source of a Content-Security-Policy that allows this script or style alone."""
    return Markup("'sha256-{}'").format(base64.b64encode(sha256(text.encode()).digest()).decode())


def in_blocks(name: str, entries: Iterable[tuple[int, Any]]) -> dict[str, dict[int, Any]]:
    """Return blocks of numbered entries, which `entry(name, number)` of `base.js` returns.

    Together they take less room than alone, and a page still unpacks little.

    Examples
    --------
    >>> in_blocks("text", [(3, "a"), (64, "b")])
    {'text-0': {3: 'a'}, 'text-1': {64: 'b'}}
    """
    blocks: dict[str, dict[int, Any]] = {}
    for number, content in entries:
        blocks.setdefault(f"{name}-{number // _IN_BLOCK}", {})[number] = content
    return blocks


def packed(content: Any) -> str:
    """Return content as compressed JSON in base64, which needs no escaping in HTML.

    Raises
    ------
    ValueError : a number is not finite, which JSON cannot represent
    """
    # ASCII, as UTF-8 cannot represent half of a surrogate pair.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    # No time in the header, so that the same content gives the same bytes.
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode()


def unpacked(block: str) -> Any:
    """Return the content of a `packed` block."""
    return json.loads(gzip.decompress(base64.b64decode(block)))


def check_replaceable(path: Path) -> None:
    """Check that a page may be written to `path`.

    Raises
    ------
    UserError : `path` exists and is no page of this program, or cannot be created
    """
    if not path.exists():
        check_out(path, "name")
        return
    if path.is_file():
        with path.open("rb") as file:
            # Only pages are replaced, never another file.
            if _OURS.search(file.read(_HEAD)):
                return
    raise UserError(
        f"{path}: expected a new file or an earlier page, found another; choose another name"
    )
