"""`data fetch`: download a published graph, check its files against recorded hashes, store it."""

import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from shlex import quote
from typing import Any

from dance_flwr.data.graphs.catalogue import (
    CATALOGUE,
    Dataset,
    RemoteFile,
    downloads_folder,
    graphs_folder,
)
from dance_flwr.data.imports.assemble import room_in
from dance_flwr.data.imports.importer import import_graph, read_report
from dance_flwr.data.imports.options import Options
from dance_flwr.data.imports.records import fault, read_object
from dance_flwr.disk import create_folder, private_lock, write_json
from dance_flwr.errors import DataError, unknown
from dance_flwr.fingerprint import file_sha256

LOCK = "lock.json"
_TIMEOUT = 10.0  # seconds without an answer
_CHUNK = 1 << 20


def fetch(
    name: str, root: Path, log: Callable[[str], None] = print, split_index: int = 0
) -> dict[str, Any]:
    """Download a published graph and store it as `<root>/graphs/<name>`; return its report.

    A file that is already in place is not downloaded again, whether it was downloaded before or
    put there by hand. An interrupted download resumes where it stopped.

    Raises
    ------
    DataError : the name is unknown, a file cannot be downloaded or differs from the one recorded
        first, or the counts are not those of the paper; no partial graph is stored
    """
    if name not in CATALOGUE:
        raise DataError(unknown("graph to fetch", [name], CATALOGUE))
    if (graphs_folder(root) / name).is_dir():
        log(f"{name} is already at {graphs_folder(root) / name}")
        return read_report(graphs_folder(root) / name)

    row, folder = CATALOGUE[name], downloads_folder(root, name)
    with room_in(folder):
        create_folder(folder)
    # Two commands at once would append to the same partial download.
    with private_lock(folder / ".busy"):
        records = read_lock(folder)
        for file in row.files:
            records[file.name] = _obtain(row, file, folder, records.get(file.name, {}), log)
            # After each file: an interrupted command still knows the first hash of what it fetched.
            write_json(folder / LOCK, records)
        extra = {"origin": {file.name: records[file.name]["from"] for file in row.files}}
        report = import_graph([folder], name, root, Options(split_index=split_index), extra=extra)
    log(f"{name} is at {graphs_folder(root) / name}")
    return report


def read_lock(folder: Path) -> dict[str, dict[str, Any]]:
    """Return local file name -> its record of the first download: sha256, size, from, revision."""
    file = folder / LOCK
    return read_object(file, "the recorded hashes", "remove the file") if file.is_file() else {}


def check_files(folder: Path) -> list[str]:
    """Return the names of the files whose content is no longer the recorded one."""
    return [
        name
        for name, record in read_lock(folder).items()
        if (folder / name).is_file() and file_sha256(folder / name) != record["sha256"]
    ]


def _obtain(
    row: Dataset, file: RemoteFile, folder: Path, first: dict[str, Any], log: Callable[[str], None]
) -> dict[str, Any]:
    """Download one file unless it is in place, compare it with `first`, return its record."""
    place = folder / file.name
    revision = first.get("revision", "")
    origin = first.get("from", "put in place by hand")
    if not place.is_file():
        log(f"fetching {file.name} from {file.origin}")
        try:
            address, revision = _address(file, revision)
            # What is left of another commit is none of this one's file.
            _download(address, place, place.with_name(f"{place.name}{revision[:8]}.part"))
        except Exception as error:  # of the hub client, of httpx or of the system
            raise DataError(_advice(row, file, folder, error)) from error
        origin = file.origin
    record = {
        "sha256": file_sha256(place),
        "size": place.stat().st_size,
        "from": origin,
        "revision": revision,
    }
    # No revision is pinned, so the first download is what later ones must match.
    if first and record["sha256"] != first["sha256"]:
        what = f"sha256 {first['sha256'][:12]} as first recorded"
        advice = f"remove the file to download it again, or {folder / LOCK} to accept it"
        raise fault(place, what, record["sha256"][:12], advice)
    return record


def _address(file: RemoteFile, recorded: str) -> tuple[str, str]:
    """Return where to download a file from, and the commit of the hub, "" for other addresses."""
    if not file.repo:
        if not file.url:
            raise OSError("it can be downloaded by hand only")
        return file.url, ""
    from huggingface_hub import HfApi, hf_hub_url

    commit = recorded or HfApi().dataset_info(file.repo, timeout=_TIMEOUT).sha
    address = hf_hub_url(file.repo, file.path, repo_type="dataset", revision=commit)
    return address, commit or ""


def _download(address: str, place: Path, part: Path) -> None:
    """Download to a `.part` file, resuming an earlier one; move it into place when complete.

    The `.part` file stays after an interruption, unlike the drafts of `dance_flwr.disk`.
    """
    start = part.stat().st_size if part.is_file() else 0
    # A server that cannot resume sends the whole file.
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        reply = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # a part of another version of the file
        raise
    with reply:
        resumes = start > 0 and getattr(reply, "status", 200) == HTTPStatus.PARTIAL_CONTENT
        length = reply.headers.get("Content-Length")
        with part.open("ab" if resumes else "wb") as stream:
            shutil.copyfileobj(reply, stream, _CHUNK)
    whole = int(length) + (start if resumes else 0) if length else part.stat().st_size
    # The copy ends without an error when the connection does.
    if part.stat().st_size != whole:
        raise OSError(
            f"{part.stat().st_size} of {whole} bytes arrived; run the command again to resume"
        )
    part.replace(place)


def _advice(row: Dataset, file: RemoteFile, folder: Path, error: Exception) -> str:
    """Return the line that says which file is missing, where to put it and how to import it."""
    source = quote(str(folder if len(row.files) > 1 else folder / file.name))
    others = ", ".join(other.name for other in row.files if other != file)
    beside = f" beside {others}" if others else ""
    reason = " ".join(str(error).split())[:100]
    return (
        f"{row.name}: {file.name} cannot be downloaded ({type(error).__name__}: {reason}); "
        f"download it from {file.origin}, put it at {folder / file.name}{beside}, then run: "
        f"dance-flwr data import {source} --name {row.name}"
    )
