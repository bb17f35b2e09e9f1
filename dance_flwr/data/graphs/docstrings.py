"""Numpydoc docstrings as node texts, and the names that they refer to."""

import re
from collections.abc import Iterator

MIN_QUOTED = 3  # shortest back-quoted name, in characters, that counts as a reference
_DROPPED_SECTIONS = {"see also", "references", "examples", "example"}

_UNDERLINE = re.compile(r"^\s*[-=~]{3,}\s*$")
_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj|attr|ref|mod|term|doc|data|exc|any):`([^`]*)`")
_LINK_ROLE = re.compile(r":(?:py:)?(?:func|class|meth|obj):`([^`]*)`")
_QUOTED = re.compile(r"(?<![`:\w])(`{1,2})([A-Za-z_][\w.]*)(?:\(\))?\1(?!`)")
_QUALIFIED = re.compile(r"(?<![\w./])(?:numpy|scipy|sklearn|networkx|np|nx)(?:\.\w+)*\.(\w+)")
# Web addresses name the package area, which is the label.
_URL = re.compile(r"`([^`<]*)<https?://[^>]*>`__?|https?://[^\s>)\]]+")
_SIGNATURE = re.compile(r"^\w+\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.MULTILINE)
_FIELD = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*:", re.MULTILINE)


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yield (title in lower case, text) of each section; the title of the summary is ''."""
    lines = doc.splitlines()
    starts = [
        i for i in range(len(lines) - 1) if lines[i].strip() and _UNDERLINE.match(lines[i + 1])
    ]
    bounds = [*starts, len(lines)]
    yield "", "\n".join(lines[: bounds[0]])
    for start, end in zip(starts, bounds[1:], strict=True):
        yield lines[start].strip().rstrip(":").lower(), "\n".join(lines[start:end])


def node_text(doc: str) -> str:
    """Return the docstring without the dropped sections, Sphinx markup and qualified names."""
    text = "\n".join(body for title, body in _sections(doc) if title not in _DROPPED_SECTIONS)
    text = _ROLE.sub(lambda match: match[1].partition("<")[0].strip().lstrip("~.!"), text)
    text = _URL.sub(lambda match: (match[1] or "").strip(), text)
    text = _QUALIFIED.sub(r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def mentions(doc: str) -> set[str]:
    """Return the names that a docstring refers to by See Also, roles and back-quotes."""
    names: set[str] = set()
    quoted: set[str] = set()
    # Parameters and results: a quoted `axis` does not refer to a function of that name.
    variables: set[str] = set()
    for title, body in _sections(doc):
        names |= {_role_target(target) for target in _LINK_ROLE.findall(body)}
        if title == "see also":
            names |= _see_also(body)
            continue
        quoted |= {name for _, name in _QUOTED.findall(body)}
        variables |= {
            name.strip(" *") for match in _FIELD.finditer(body) for name in match[1].split(",")
        }
        variables |= {
            name for match in _SIGNATURE.finditer(body) for name in re.findall(r"\w+", match[1])
        }
    # Names of one or two letters are variables, even if a function has that name (`t`, `f`, `eq`).
    names |= {name for name in quoted - variables if len(name) >= MIN_QUOTED}
    return names - {""}


def _see_also(body: str) -> set[str]:
    """Return the names in a See Also section: lines of `a, b : text`, `a: text` or roles."""
    names: set[str] = set()
    for line in body.splitlines()[2:]:
        if line.startswith((" ", "..")):  # an indented line describes the entry above it
            continue
        head = re.split(
            r"\s*:(?:\s|$)", _ROLE.sub(lambda match: _role_target(match[1]), line), maxsplit=1
        )[0]
        parts = (part.strip(" `:").removesuffix("()") for part in head.split(","))
        names |= {part for part in parts if part.replace(".", "").isidentifier()}
    return names


def _role_target(content: str) -> str:
    shown, bracket, target = content.partition("<")
    return (target.rstrip("> ") if bracket else shown).strip().lstrip("~.!").removesuffix("()")
