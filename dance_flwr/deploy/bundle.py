"""Compare the bundle of a run with the installed app, without unpacking or importing it."""

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from dance_flwr.deploy.app_folder import PYPROJECT, app_files
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import VERSION

# Files that no code reads at a node, and Flower's list of hashes.
_NO_CODE = re.compile(r"README\.md|LICENSE|partitions/[^/]+\.json|\.info/CONTENT")
# What parsing raises for bytes that are no code, or nested too deeply; such a file counts by bytes.
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, LookupError, TypeError)
_MAX_BYTES = 64 * 2**20  # unpacked; the app has 3 MB, and Flower's bundles at most 10 MB packed


def refusal(bundle: bytes, accepted: Collection[str]) -> str:
    """Return in one line why a node refuses a bundle; "" if it has the installed code.

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
    digest = digest_of(changes)
    if not changes or digest in accepted:
        return ""
    first, *others = sorted(changes)
    also = f" and {len(others)} more" if others else ""
    return (
        f"expected the code of dance-flwr {VERSION} as this node has it, found other code "
        f"in {first}{also}; submit the run with the release of the nodes, or have the operator "
        f"start the node with --accept-code {digest}, or run `dance-flwr site accept {digest}`; it "
        "still runs its own code then"
    )


def differences(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle whose code is not that of the installed app.

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
        # Each entry, as one name may occur twice in an archive.
        contents = [(entry.filename, archive.read(entry)) for entry in entries]
    changes = dict.fromkeys(installed.keys() - {name for name, _ in contents}, b"")
    for name, content in contents:
        file = installed.get(name)
        if file is None or not _same(name, content, file):
            changes[name] = _code(name, content)
    return changes


def _same(name: str, content: bytes, file: Path) -> bool:
    expected = file.read_bytes()
    # Of one release, all bytes are the same: nothing needs to be parsed, with every message.
    return content == expected or _code(name, content) == _code(name, expected)


def _code(name: str, content: bytes) -> bytes:
    """Return what counts of a file."""
    try:
        if name.endswith(".py"):
            # Why (decision 29): all of the tree, unlike `provenance`. An annotation runs, too.
            return ast.dump(ast.parse(content)).encode()
        if name == PYPROJECT:
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
