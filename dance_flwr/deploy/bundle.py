"""The code of a run: the submitted app, and which code a node accepts.

A node compares the bundle of a run with the installed app, without unpacking or importing it. The
folder of a site holds the digests that its operator has accepted, and the refused ones, a line
each.
"""

import ast
import hashlib
import json
import re
import shutil
import tomllib
from collections.abc import Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from dance_flwr.config.paths import CODE, PROJECT
from dance_flwr.disk import append_to
from dance_flwr.errors import UserError
from dance_flwr.escaping import one_line
from dance_flwr.fingerprint import VERSION

_PYPROJECT, _PACKAGE = "pyproject.toml", "dance_flwr"
# From the first table of the configuration's keys to the next other table, or the end.
_BLOCK = re.compile(
    r"^\[tool\.flwr\.app\.config\].*?(?=^\[(?!tool\.flwr\.app\.config)|\Z)", re.M | re.S
)
# Files that no code reads at a node, and Flower's list of hashes.
_NO_CODE = re.compile(r"README\.md|LICENSE|partitions/[^/]+\.json|\.info/CONTENT")
# What parsing raises for bytes that are no code, or nested too deeply; such a file counts by bytes.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, LookupError, TypeError)
_MAX_BYTES = 64 * 2**20  # unpacked; the app has 3 MB, and Flower's bundles at most 10 MB packed
ACCEPTED, REFUSED = "accepted-code", "refused-code"


def app_dir() -> Path:
    """Return the folder of the Flower app: the one with our pyproject.toml."""
    path = PROJECT / _PYPROJECT
    if path.is_file() and _toml(path)["project"]["name"] == "dance-flwr":
        return PROJECT
    raise UserError(
        f"expected the app's {_PYPROJECT} in {PROJECT}, found none; install dance-flwr again, from "
        "a wheel or with `pip install -e .`"
    )


def submitted_app(scratch: Path, method: str = "") -> Path:
    """Copy the app's files into a folder below `scratch`; return that folder.

    Flower visits every file of its folder, which takes seconds if an environment is there, and
    refuses keys that pyproject.toml does not declare. The copy holds the app alone and also
    declares the keys of the run's method if another package brings it.
    """
    from dance_flwr.config.text import toml_block  # a node reads bundles and writes none

    copy = scratch / "app"
    shutil.rmtree(copy, ignore_errors=True)  # of an earlier release
    for name, file in app_files().items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    text = (copy / _PYPROJECT).read_text(encoding="utf-8")
    declared = _BLOCK.sub(lambda _: toml_block(method) + "\n\n", text)
    (copy / _PYPROJECT).write_text(declared, encoding="utf-8")
    return copy


def app_files() -> dict[str, Path]:
    """Return the installed files that Flower bundles: path in the bundle -> file."""
    app = app_dir()
    files = {_PYPROJECT: app / _PYPROJECT}
    for pattern in _toml(app / _PYPROJECT)["tool"]["flwr"]["app"]["fab-include"]:
        base = CODE if pattern.startswith(f"{_PACKAGE}/") else app
        for file in base.glob(pattern.lstrip("/")):  # a slash in front: of this folder alone
            if app != CODE and base == CODE and app in file.parents:
                continue  # the app's own files, inside the package of a wheel
            files[file.relative_to(base).as_posix()] = file
    return files


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def refusal(bundle: bytes, accepted: Collection[str]) -> tuple[str, str]:
    """Return why a node refuses a bundle, in one line, and its digest; "" if it has accepted code.

    Parameters
    ----------
    bundle : content of a Flower App Bundle
    accepted : digests of differences that the node's operator accepts

    Raises
    ------
    UserError : the bundle is too large to compare
    BadZipFile, zlib.error, ... : it is no archive
    """
    changes = differences(bundle)
    if not changes or (digest := digest_of(changes)) in accepted:
        return "", ""
    first, also = one_line(min(changes)), f" and {len(changes) - 1} more" * (len(changes) > 1)
    return (
        f"expected the code of dance-flwr {VERSION} as this node has it, found other code "
        f"in {first:.99}{also}; submit the run with the release of the nodes, or have the operator "
        f"start the node with --accept-code {digest}, or run `dance-flwr site accept {digest}`; it "
        "still runs its own code then"
    ), digest


def differences(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle that differ from the installed app.

    Python counts by its syntax tree, pyproject.toml without the keys of a run; documents and
    partitions do not count. Any other file is compared by its bytes.

    Returns
    -------
    path in the bundle -> what counts of it; empty for a file that the bundle lacks
    """
    installed = {name: file for name, file in app_files().items() if not _NO_CODE.fullmatch(name)}
    with ZipFile(BytesIO(bundle)) as archive:
        entries = [each for each in archive.infolist() if not _NO_CODE.fullmatch(each.filename)]
        size = sum(entry.file_size for entry in entries)
        if size > _MAX_BYTES:
            raise UserError(f"expected a bundle of at most {_MAX_BYTES} bytes, found {size}")
        # A list, as an archive may hold a name twice.
        contents = [(entry.filename, archive.read(entry)) for entry in entries]
    changes = dict.fromkeys(installed.keys() - {name for name, _ in contents}, b"")
    for name, content in contents:
        file = installed.get(name)
        expected = file.read_bytes() if file else None
        # Equal bytes, as in one release, need no parsing.
        if content != expected:
            code = _code(name, content)
            if expected is None or code != _code(name, expected):
                changes[name] = code
    return changes


def _code(name: str, content: bytes) -> bytes:
    try:
        if name.endswith(".py"):
            # Why (decision 29): all of the tree, unlike `provenance`: an annotation runs, too.
            return ast.dump(ast.parse(content)).encode()
        if name == _PYPROJECT:
            settings = tomllib.loads(content.decode())
            del settings["tool"]["flwr"]["app"]["config"]  # data, which differ by plug-ins
            return json.dumps(settings, sort_keys=True, default=str).encode()
    except _UNREADABLE:
        pass
    return content


def digest_of(changes: dict[str, bytes]) -> str:
    """Return 16 hex digits of sha256 over what counts of the changed files."""
    digest = hashlib.sha256()
    for name in sorted(changes):
        digest.update(f"{name}\n{len(changes[name])}\n".encode() + changes[name])
    return digest.hexdigest()[:16]


def accepted_code(folder: Path) -> Mapping[str, str]:
    """Return digest -> what the site's operator accepted: releases, and differences of bundles."""
    return digests_in(folder / ACCEPTED)


def refuse_code(folder: Path, digest: str, reason: str) -> None:
    """Record the code of a refused run, once, for the operator to accept; of a hundred at most."""
    known = digests_in(folder / REFUSED)
    if len(known) < 100 and digest not in known:
        append_digest(folder / REFUSED, digest, reason)


def digests_in(path: Path) -> dict[str, str]:
    """Return digest -> description of a file of digests; empty without one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {digest: what for digest, _, what in (line.partition(" ") for line in lines)}


def append_digest(path: Path, digest: str, what: str) -> None:
    """Add a line to a file of digests."""
    with append_to(path) as file:
        file.write(f"{digest} {' '.join(what.split())}\n".encode())
