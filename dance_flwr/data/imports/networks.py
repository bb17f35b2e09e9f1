"""Networks: of NetworkX, in GML and RDF, and a folder of Markdown notes."""

import html
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dance_flwr.data.graphs.limits import check
from dance_flwr.data.imports.layouts import ENDS, LAYOUTS, GraphFile
from dance_flwr.data.imports.records import (
    Record,
    fault,
    files_in,
    flat,
    network,
    opened,
    optional,
    suffix_of,
    unused,
)
from dance_flwr.data.imports.text_tables import encoding_of, text_of
from dance_flwr.errors import DataError

RDF = {
    ".ttl": "turtle",
    ".nt": "nt",
    ".n3": "n3",
    ".rdf": "xml",
    ".owl": "xml",
    ".jsonld": "json-ld",
}
# Of GML. Other references are not replaced, nor is an ampersand that begins none.
_ENTITY = re.compile(r"&(?:\w+|#\d+|#x[\da-fA-F]+);")
_KEY = re.compile(r"[^\W\d][\w.:-]*")
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?|(?i:INF))|(?i:NAN)")
_BARE = ("id", "label", *ENDS[0])  # keys whose values need no quotes
_WIKI_LINK = re.compile(r"(?<!!)\[\[([^\[\]|#^]+)[^\[\]]*\]\]")
_LINK = re.compile(r"(?<!!)\[[^\[\]]*\]\(<?([^()<>\s#]+\.md)[^()]*\)")
_TAG = re.compile(r"(?<![\w/#&])#([^\W\d][\w/-]*)")
_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_ATTACHMENTS = (".png", ".jpg", ".jpeg", ".svg", ".pdf", ".canvas")
_LANGUAGES = ("", "en")  # of which a text is taken before others


def of_networkx(graph: Any, kind: str, where: Path | str) -> GraphFile:
    """Return the graph of NetworkX; ids and ends have other names where attributes have theirs."""
    nodes = [(node, flat(dict(values))) for node, values in graph.nodes(data=True)]
    edges = [(a, b, flat(dict(values))) for a, b, values in graph.edges(data=True)]
    key = unused("id", {name for _, values in nodes for name in values})
    taken = {name for *_, values in edges for name in values}
    source, target = unused("source", taken), unused("target", taken)
    return network(
        kind,
        where,
        [{key: node, **values} for node, values in nodes],
        [{source: a, target: b, **values} for a, b, values in edges],
        {"id": key, "source": source, "target": target},
        directed=graph.is_directed(),
    )


def read_gml(file: Path, encoding: str = "") -> GraphFile:
    """Return the graph in a GML file; the encoding is UTF-8 or that of its mark by default.

    NetworkX reads no text over several lines, no number such as `-2e3`, and no edge to a node that
    is not there.
    """
    with text_of(file, encoding_of(file, encoding)[0], None) as stream:
        text = stream.read().rstrip()
    facts: dict[str, str] = {}
    try:
        content = _gml(file, text)
    except DataError:
        if '\\"' not in text:
            raise
        content, facts = _gml(file, text, escapes=True), {"quotes": "escaped by backslashes"}
    graphs = _listed(content.get("graph", []))
    if len(graphs) != 1:
        raise fault(file, "one graph", len(graphs) or "none", "keep or add one")
    rows = [_listed(graphs[0].get(what, [])) for what in ("node", "edge")]
    if not all(isinstance(row, dict) for of in rows for row in of):
        raise fault(file, "every node and edge in brackets", "other values", "correct it")
    nodes, edges = (list(map(flat, of)) for of in rows)
    nodes = [{"id": row.pop("id", None), **row} for row in nodes]
    is_directed = graphs[0].get("directed") in (1, "1")
    roles = {name: name for name in ("id", *ENDS[0])}
    return network("GML", file, nodes, edges, roles, directed=is_directed, facts=facts)


def _gml(file: Path, text: str, *, escapes: bool = False) -> Record:
    """Return the keys of a GML text; values of one that repeats are a list.

    Parameters
    ----------
    escapes : whether a backslash in a text escapes the next character
    """
    inside = r'(?:[^"\\]|\\.)*' if escapes else '[^"]*'
    token = re.compile(rf'\s+|#[^\n]*|"({inside})"|[\[\]"]|[^\s#\[\]"]+', re.DOTALL)
    path: list[Record] = [{}]  # of open brackets
    key = ""
    for found in token.finditer(text):
        word, value = found[0], found[1]
        if word.isspace() or word[0] == "#":
            continue
        if word == "]" and not key and len(path) > 1:
            path.pop()
        elif not key and _KEY.fullmatch(word):
            key = word
        elif key and (of_word := _value(key, word)) is not None:
            if value is not None:
                value = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) if escapes else value
                of_word = _ENTITY.sub(lambda entity: html.unescape(entity[0]), value)
            outer = path[-1]
            if key not in outer:
                outer[key] = of_word
            elif isinstance(outer[key], list):
                outer[key].append(of_word)
            else:  # NetworkX marks a list of one
                outer[key] = [outer[key]] * (outer[key] != "_networkx_list_start") + [of_word]
            path += [of_word] if word == "[" else []
            key = ""
        else:
            raise _damaged(file, text, found.start(), key)
    if key or len(path) > 1:
        raise _damaged(file, text, len(text), key)
    return path[0]


def _value(key: str, word: str) -> Any:
    """Return the value that a word of GML is; None if it is none."""
    if word == "[":
        return {}
    if _NUMBER.fullmatch(word):
        return int(word) if word.lstrip("+-").isdecimal() else float(word)
    is_text = word[0] == '"' and len(word) > 1
    return word if is_text or (key in _BARE and _KEY.fullmatch(word)) else None


def _damaged(file: Path, text: str, place: int, key: str) -> DataError:
    what = f"a number, a text in quotes or '[' as {key!r}" if key else "a key, or ']' for every '['"
    found = repr(text[place : place + 40]) if place < len(text) else "the end"
    advice = "correct it; a quote in a text is written &quot;"
    return fault(f"{file} line {text.count(chr(10), 0, place) + 1}", what, found, advice)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def read_rdf(file: Path, label: str = "") -> GraphFile:
    """Return the graph of the triples in a file of RDF.

    Subjects are nodes and their literals columns, by the end of the predicate; a triple whose
    object is no literal is an edge. The type of a subject is its class, or the object of the
    predicate that is named as `label`.
    """
    rdflib = optional("rdflib", file)
    from rdflib.plugins.stores.memory import Memory

    added: list[Any] = []

    class InOrder(Memory):
        def add(self, triple: Any, *more: Any, **options: Any) -> None:
            added.append(triple)
            super().add(triple, *more, **options)

    with opened(file) as stream:
        content = stream.read()
    try:
        rdflib.Graph(store=InOrder()).parse(data=content, format=RDF[suffix_of(file)])
    except Exception as error:  # of the parser of a format, each with its own
        raise fault(file, "RDF", error) from error
    nodes: dict[str, dict[str, list[tuple[str, str]]]] = {}
    edges: list[Record] = []
    # Blank nodes have random names; in the order of the file they are the same in every run.
    names: dict[Any, Any] = {}
    for term in (term for subject, _, value in added for term in (subject, value)):
        if isinstance(term, rdflib.BNode) and term not in names:
            names[term] = rdflib.BNode(f"b{len(names) + 1}")
    renamed = {tuple(names.get(term, term) for term in triple) for triple in added}
    for subject, predicate, value in sorted(renamed):
        values = nodes.setdefault(str(subject), {})
        name = _local(predicate)
        if isinstance(value, rdflib.Literal):
            values.setdefault(name, []).append((str(value.language or ""), str(value)))
        elif predicate == rdflib.RDF.type or name == label:
            values.setdefault(name, []).append(("", _local(value)))
        else:
            edges.append({"source": str(subject), "target": str(value), "relation": name})
    records = [{"id": node} | {k: _one(v) for k, v in of.items()} for node, of in nodes.items()]
    known = {name for of in nodes.values() for name in of}
    texts = tuple(name for name in LAYOUTS["rdf"]["texts"] if name in known)
    roles = {"id": "id", "label": "type" if "type" in known else "", "text": texts or ("",)}
    return network("RDF", file, records, edges, roles, directed=True)


def _local(name: Any) -> str:
    return re.split(r"[/#:]", str(name).rstrip("/#"))[-1]


def _one(values: list[tuple[str, str]]) -> Any:
    """Return a value in no language or in English, else in the first; several as a list."""
    order = [language for language, _ in values]
    chosen = next((language for language in _LANGUAGES if language in order), order[0])
    texts = list(dict.fromkeys(text for language, text in values if language == chosen))
    return texts[0] if len(texts) == 1 else texts


def read_notes(folder: Path) -> GraphFile | None:
    """Return the graph of the notes in a folder, as of Obsidian; None if there are none.

    A note is named as its file, with the folder in front if two have the same name. Its links are
    its edges; its front matter and `tags` are columns.
    """
    files = sorted(file for file in folder.rglob("*.md") if file.is_file())
    if not files:
        return None
    stems = [file.stem for file in files]
    paths = [file.relative_to(folder).with_suffix("").as_posix() for file in files]
    number = Counter(stem.lower() for stem in stems)
    ids = [s if stems.count(s) == 1 else p for s, p in zip(stems, paths, strict=True)]
    # By path, or a name that one note has, whatever its case, as Obsidian resolves links.
    known = {s.lower(): i for s, i in zip(stems, ids, strict=True) if number[s.lower()] == 1}
    known |= {p.lower(): i for p, i in zip(paths, ids, strict=True)}
    nodes: list[Record] = []
    edges: list[Record] = []
    for file, name in zip(files, ids, strict=True):
        text = file.read_text("utf-8-sig")
        check(file, characters=len(text))
        front, body = _front_matter(file, text)
        tags = front.pop("tags", None) or front.pop("tag", None) or []
        words = tags.replace(",", " ").split() if isinstance(tags, str) else tags
        tags = list(dict.fromkeys([*map(str, words), *_TAG.findall(body)]))
        tags = tags[0] if len(tags) == 1 else tags or None
        place = file.parent.relative_to(folder)
        note = {**front, "id": name, "text": body.strip(), "tags": tags}
        nodes.append({**flat(note), "folder": place.as_posix()})
        links = (known.get(link.lower(), link) for link in _links(place, body))
        edges += [{"source": name, "target": link} for link in links]
    others = [name for name in files_in(folder) if folder / name not in files]
    more = {"files": tuple(files), "left_out": {"files": others} if others else {}}
    return network("Markdown notes", folder, nodes, edges, {"id": "id"}, directed=True, **more)


def _front_matter(file: Path, text: str) -> tuple[Record, str]:
    """Return the properties above a note, and the note."""
    if not (found := _FRONT.match(text)):
        return {}, text
    yaml = optional("yaml", file)
    try:
        properties = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        raise fault(file, "YAML between the lines '---'", error, "correct it") from error
    if not isinstance(properties, dict):
        return {}, text
    return {str(k): v for k, v in properties.items()}, text[found.end() :]


def _links(place: Path, body: str) -> Iterator[str]:
    """Yield the names or paths of the notes that a note in a folder links to, attachments aside."""
    for target in _WIKI_LINK.findall(body):
        name = target.strip().removesuffix(".md").strip("/")
        if Path(name).suffix.lower() not in _ATTACHMENTS:
            yield name
    for target in _LINK.findall(body):
        if "://" not in target:
            yield Path(os.path.normpath(place / unquote(target))).with_suffix("").as_posix()
