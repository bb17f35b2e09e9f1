"""The shell of every page: a self-contained HTML file that makes no network requests.

Templates are Jinja2 with autoescape. Scripts and styles are those of `static/`, inline, and the
page's Content-Security-Policy names their hashes: the browser runs no other, whatever the data say.
Data lie in inert blocks, compressed; `base.js` unpacks them and writes text as text.
"""

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dance_flwr import __version__
from dance_flwr.config.outputs import check_out
from dance_flwr.disk import atomic_file
from dance_flwr.errors import UserError, counted

PRIVATE = 0o600  # for pages with texts of a client
_BASE_STYLES, _BASE_SCRIPTS = ("base.css",), ("base.js",)
_GENERATOR = f'<meta name="generator" content="dance-flwr {__version__}">'
_OURS = re.compile(rb'<meta name="generator" content="dance-flwr [^"]*">')
_HEAD = 2048  # bytes, in which a page names its generator
# What would end a script or style element, or change how one is read.
_BREAKS_OUT = re.compile(r"</(?:script|style)|<!--|\r", re.IGNORECASE)


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes
    ----------
    template : name in `templates/`; it extends `base.html.j2`
    title : of the window
    facts : what the template reads; every text is escaped
    data : name -> content of a block, which `unpack(name)` of `base.js` returns. Each block is
        JSON, compressed by itself, so that a page opens only what it shows
    scripts, styles : names in `static/`, after `base.js` and `base.css`
    connects : whether the page may ask the server that it came from, for what changes while it is
        open; a file may not
    about : what the page is of: it does not replace one of something else; "" = not known
    """

    template: str
    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()
    connects: bool = False
    about: str = ""

    def html(self) -> bytes:
        """Return the page, UTF-8; the same facts and data give the same bytes."""
        script = "\n".join(map(static, (*_BASE_SCRIPTS, *self.scripts)))
        style = "\n".join(map(static, (*_BASE_STYLES, *self.styles)))
        text = (
            environment()
            .get_template(self.template)
            .render(
                self.facts,
                title=self.title,
                generator=f"{_GENERATOR}\n{_identifier(self.about)}",
                policy=policy(script, style, self.connects),
                script=script,
                style=style,
                blocks={name: packed(content) for name, content in self.data.items()},
            )
        )
        # Half of a surrogate pair has no UTF-8; a browser shows the reference as U+FFFD.
        return text.encode("utf-8", "xmlcharrefreplace")

    def write(self, path: Path, mode: int = PRIVATE) -> None:
        """Write the page, whole or not at all; it has its mode before its first byte.

        Raises
        ------
        UserError : `path` is there and no page of the same, or cannot be created
        """
        content = self.html()
        check_replaceable(path, self.about)
        with atomic_file(path, mode=mode) as file:
            file.write(content)


@cache
def environment() -> Environment:
    """Return the one environment of all templates: escaping, and no name that is not given."""
    made = Environment(
        loader=PackageLoader("dance_flwr.pages"),
        autoescape=True,
        # A misspelt name in a template raises instead of leaving a gap.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"prose": prose, "counted": counted}
    return made


def prose(text: str) -> Markup:
    """Return a text with what stands between backticks as code.

    Examples
    --------
    >>> prose("`a < b`, or more")
    Markup('<code>a &lt; b</code>, or more')
    """
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


@cache
def static(name: str) -> str:
    """Return a file of `static/`, which is to stand in a script or style element.

    Raises
    ------
    ValueError : it holds what would end that element
    """
    text = (files("dance_flwr.pages") / "static" / name).read_text("utf-8")
    if match := _BREAKS_OUT.search(text):
        raise ValueError(f"static/{name}: expected no {match[0]!r} in an inline file, found one")
    return text


def policy(script: str, style: str, connects: bool = False) -> str:
    """Return the Content-Security-Policy of a page with this one script and this one style.

    Nothing else runs, is fetched, framed or submitted; and no text becomes markup, as the script
    has no type that the browser would trust as such.
    """
    # Why all of this (decision 22): texts of strangers are in the page, and none may act.
    rules = {
        "default-src": "'none'",
        "script-src": _hash_of(script),
        "style-src": _hash_of(style),
        "connect-src": "'self'" if connects else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def packed(content: Any) -> str:
    """Return content as JSON, compressed, in base64: letters that no parser of HTML stops at.

    Raises
    ------
    ValueError : a number is not finite, which JSON has no word for
    """
    # ASCII: half of a surrogate pair stays what it is, which UTF-8 could not carry.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    # No time in the header: the same content gives the same bytes.
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode()


def unpacked(block: str) -> Any:
    """Return the content of a `packed` block."""
    return json.loads(gzip.decompress(base64.b64decode(block)))


def _identifier(about: str) -> str:
    # A hash, as folders and ids of nodes are nobody's business where the page is passed on.
    digest = sha256(about.encode()).hexdigest()[:32] if about else ""
    return f'<meta name="about" content="{digest}">'


def check_replaceable(path: Path, about: str = "") -> None:
    """Check that a page may be written to `path`.

    Parameters
    ----------
    about : of the page; "" = not known yet

    Raises
    ------
    UserError : something else than an earlier page of the same is there, or no file can be created
    """
    if not path.exists():
        check_out(path)
        return
    expected, found = "a new file or an earlier page", str(path)
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD)
        # A page of ours is replaced, any other file never.
        if _OURS.search(head):
            named = re.search(rb'<meta name="about" content="[^"]+">', head)
            if not (about and named) or named[0] == _identifier(about).encode():
                return
            expected, found = f"{expected} of the same", f"another one in {path}"
    raise UserError(f"--out: expected {expected}, found {found}; choose another name")
