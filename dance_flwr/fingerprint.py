"""Identify a release, the code that computed a result, a model or a file."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

VERSION = "0.1.0"
# Why (decision 26): two releases work together as long as what they exchange is the same, whatever
# else differs. Raise it with the schema in tests/golden/schema.json, whose test says when.
PROTOCOL = 9
"""Number of the messages and of the state of runs.

It decides whether a node may join, whether a run may be resumed, and what `site join` expects.
"""
APP = "_app"  # folder of the package in a wheel: what lies beside the package in a checkout

# Why (decision 26): what is not listed counts, so that no new package is forgotten. The listed ones
# start, store and show what the others compute; a configuration is part of every result.
_NOT_COMPUTING = {
    *("__init__.py", "disk.py", "errors.py", "escaping.py", "events.py", "fingerprint.py"),
    *(APP, "api", "cli", "config", "deploy", "pages", "runs"),
}
# Fields of a syntax tree that change no number.
_NO_CODE = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind"}
_FOR_ANNOTATIONS = {"__future__", "typing", "collections.abc"}  # modules


@lru_cache(maxsize=4)
def provenance(package: Path = Path(__file__).parent) -> str:
    """Return 16 hex digits of sha256 over the syntax trees of the code that computes.

    Docstrings, comments, annotations and layout do not count. A checkout, what Flower unpacks and
    an installed wheel of the same sources have the same hash.

    Parameters
    ----------
    package : folder of the package
    """
    named = {path.relative_to(package): path for path in sorted(package.rglob("*.py"))}
    files = {n.as_posix(): p for n, p in named.items() if n.parts[0] not in _NOT_COMPUTING}
    # Why (decision 26): parsing takes a third of a second, so the result lies beside the bytecode,
    # which whoever can write it can change anyway. The bytes come last: a torn file is no match.
    read = {**files, "": Path(__file__)}
    content = commitment({name: file_sha256(path) for name, path in read.items()})
    known = Path(cache_from_source(str(package / "__init__.py"))).with_suffix(".provenance")
    with suppress(OSError, ValueError):
        found, of = known.read_text("ascii").split()
        if of == content:
            return found
    digest = hashlib.sha256()
    for name, path in files.items():
        digest.update("\n".join([name, *_syntax(ast.parse(path.read_bytes()))]).encode())
    result = digest.hexdigest()[:16]
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            known.write_text(f"{result} {content}", "ascii")
    return result


def commitment(content: Mapping[str, object]) -> str:
    """Return the sha256 of content as canonical JSON; a secret salt in it makes it hiding."""
    # Canonical: content that was stored and read again has the same hash.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def code_hash(file: Path) -> str:
    """Return 12 hex digits of sha256 over the syntax tree of a file, as in `provenance`."""
    tree = "\n".join(_syntax(ast.parse(file.read_bytes())))
    return hashlib.sha256(tree.encode()).hexdigest()[:12]


def _syntax(node: ast.AST) -> Iterator[str]:
    yield type(node).__name__
    for name in node._fields:
        if name in _NO_CODE:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            yield f"{name} ["
            for item in value:
                if not isinstance(item, ast.AST):
                    yield repr(item)
                elif not (isinstance(item, ast.stmt) and _is_commentary(item)):
                    yield from _syntax(item)
            yield "]"
        elif isinstance(value, ast.AST):
            yield name
            yield from _syntax(value)
        else:
            yield f"{name} {value!r}"


def _is_commentary(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant(str())) | ast.If(ast.Name("TYPE_CHECKING"), _, []):
            return True
    return isinstance(statement, ast.ImportFrom) and statement.module in _FOR_ANNOTATIONS


def model_fingerprint(state: Mapping[str, Tensor]) -> str:
    """Return 16 hex digits of sha256 over names, shapes and bytes of a state dict, by name."""
    digest = hashlib.sha256()
    # By name and not by place, as files and messages may order a model differently.
    for name in sorted(state):
        array = state[name].detach().cpu().contiguous().numpy()
        digest.update(_title(name, array.dtype, array.shape))
        digest.update(array.data)
    return digest.hexdigest()[:16]


@lru_cache(maxsize=4096)  # NumPy takes longer to name a type than to hash a small tensor
def _title(name: str, kind: object, shape: tuple[int, ...]) -> bytes:
    return f"{name}:{kind}:{shape};".encode()


def file_sha256(file: Path) -> str:
    """Return the sha256 hex of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
