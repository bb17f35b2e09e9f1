"""`data fetch`: download a published graph, hold its files to the hashes first seen, and store it."""

import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from shlex import quote
from typing import Any

from dance_flwr.data.catalogue import CATALOGUE, Dataset, RemoteFile
from dance_flwr.data.folder import file_sha256
from dance_flwr.data.imported import graphs_folder, read_card, save
from dance_flwr.data.layouts import read_layout
from dance_flwr.errors import DataError

LOCK = "lock.json"
_TIMEOUT = 10.0  # seconds without an answer
_CHUNK = 1 << 20


def downloads_folder(root: Path, name: str) -> Path:
    """Return where the files of a published graph lie, as they came."""
    return root / "downloads" / name


def fetch(
    name: str, root: Path, say: Callable[[str], None] = print, split_index: int = 0
) -> dict[str, Any]:
    """Download a published graph and store it as `<root>/graphs/<name>`; return its card.

    A file that is already in place, also by hand, is not downloaded again. What breaks off goes on
    where it stopped.

    Raises
    ------
    DataError : the name is unknown, a file cannot be had, it differs from the one first seen, or
        its counts are not the paper's; then nothing is half there
    """
    if name not in CATALOGUE:
        raise DataError(
            f"dataset {name!r} cannot be fetched; expected one of: {', '.join(CATALOGUE)}"
        )
    if (graphs_folder(root) / name).is_dir():
        say(f"{name} is already at {graphs_folder(root) / name}")
        return read_card(graphs_folder(root) / name)
    from filelock import FileLock

    row, folder = CATALOGUE[name], downloads_folder(root, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder}: expected a folder that can be written, found: {error.strerror}; mend it"
        ) from error
    with FileLock(folder / ".busy"):
        seen = read_lock(folder)
        for file in row.files:
            seen[file.name] = _obtain(row, file, folder, seen.get(file.name, {}), say)
            _write_json(folder / LOCK, seen)
        extra = {"origin": {file.name: seen[file.name]["from"] for file in row.files}}
        card = save(read_layout(row, folder, split_index), name, root, extra)
    say(f"{name} is at {graphs_folder(root) / name}")
    return card


def read_lock(folder: Path) -> dict[str, dict[str, Any]]:
    """Return local file name -> what was recorded when the file first came: sha256, size, from,
    revision.
    """
    try:
        content: dict[str, dict[str, Any]] = json.loads((folder / LOCK).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / LOCK}: expected the recorded hashes, found: {error}; remove the file"
        ) from error
    return content


def check_files(folder: Path) -> list[str]:
    """Return the files that are there, but no longer with the recorded content.

    Raises
    ------
    DataError : the record cannot be read
    """
    recorded = read_lock(folder)
    return [
        n
        for n, e in recorded.items()
        if (folder / n).is_file() and file_sha256(folder / n) != e["sha256"]
    ]


def _obtain(
    row: Dataset, file: RemoteFile, folder: Path, seen: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """Put one file in its place, if it is not there yet, and return its record."""
    place, revision, origin = (
        folder / file.name,
        seen.get("revision", ""),
        seen.get("from", "put in place by hand"),
    )
    if not place.is_file():
        say(f"fetching {file.name} from {file.origin}")
        try:
            revision = _from_hub(file, place, revision) if file.repo else _from_url(file, place)
        except Exception as error:  # the hub client raises its own, httpx's and the system's errors
            raise DataError(_advice(row, file, folder, error)) from error
        origin = file.origin
    record = {
        "sha256": file_sha256(place),
        "size": place.stat().st_size,
        "from": origin,
        "revision": revision,
    }
    if seen and record["sha256"] != seen["sha256"]:
        raise DataError(
            f"{place}: expected sha256 {seen['sha256'][:12]} as first recorded, found {record['sha256'][:12]}; "
            f"remove the file to get it again, or {folder / LOCK} to accept it"
        )
    return record


def _from_hub(file: RemoteFile, place: Path, seen: str) -> str:
    """Download a hub file and return the commit it is from; the hub client goes on where it
    stopped.
    """
    from huggingface_hub import HfApi, hf_hub_download

    asked = file.revision or seen or None
    missed: Exception | None = None
    try:
        # One request with a short limit, so that an unreachable hub fails here and at once.
        asked = HfApi().dataset_info(file.repo, revision=asked, timeout=_TIMEOUT).sha or asked
    except Exception as error:  # what came before may still be complete
        missed = error
    cache = place.parent / ".hub"
    where: dict[str, Any] = {
        "repo_type": "dataset",
        "revision": asked,
        "cache_dir": cache,
        "etag_timeout": _TIMEOUT,
    }
    try:
        found = Path(
            hf_hub_download(file.repo, file.path, local_files_only=missed is not None, **where)
        )
    except Exception as error:
        raise missed or error from error
    ready = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        shutil.copyfile(found, ready)
        ready.replace(place)
    finally:
        ready.unlink(missing_ok=True)
    shutil.rmtree(cache, ignore_errors=True)
    commit = re.search(r"/snapshots/([0-9a-f]{40})/", found.as_posix())
    return commit[1] if commit else asked or ""


def _from_url(file: RemoteFile, place: Path) -> str:
    """Download an address to a `.part` file, going on where it stopped, and move it into place when
    it is whole.
    """
    if not file.url:
        raise OSError("it is offered for download by hand only")
    part = place.with_name(place.name + ".part")
    start = part.stat().st_size if part.is_file() else 0
    # a server that cannot go on answers with the whole file
    request = urllib.request.Request(
        file.url, headers={"Range": f"bytes={start}-"} if start else {}
    )
    try:
        reply = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # it belongs to another version of the file
        raise
    with reply:
        goes_on = start > 0 and getattr(reply, "status", 200) == 206
        length = reply.headers.get("Content-Length")
        with part.open("ab" if goes_on else "wb") as stream:
            shutil.copyfileobj(reply, stream, _CHUNK)
    whole = int(length) + (start if goes_on else 0) if length else part.stat().st_size
    if part.stat().st_size != whole:
        raise OSError(
            f"{part.stat().st_size} of {whole} bytes came; run the command again to go on"
        )
    part.replace(place)
    return ""


def _advice(row: Dataset, file: RemoteFile, folder: Path, error: Exception) -> str:
    """Return the one line that says which file, where to put it and how to import it."""
    source = quote(str(folder if len(row.files) > 1 else folder / file.name))
    others = ", ".join(other.name for other in row.files if other != file)
    beside = f" beside {others}" if others else ""
    reason = " ".join(str(error).split())[:100]
    return (
        f"{row.name}: {file.name} cannot be downloaded ({type(error).__name__}: {reason}); get it from {file.origin}, "
        f"put it at {folder / file.name}{beside}, then run: dance-flwr data import {source} --name {row.name} "
        f"--data-root {quote(str(folder.parent.parent))}"
    )


def _write_json(file: Path, content: dict[str, Any]) -> None:
    ready = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    ready.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    ready.replace(file)
