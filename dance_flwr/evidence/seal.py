"""The seal of a run's evidence: one hash over all packs of a client at the end of the run.

The server keeps the hash in the run's record and the client keeps the packs, so neither can replace
a pack later, even if nobody has its model any more.
"""

import json

from dance_flwr.dance.state import RunFolder
from dance_flwr.data.digests import file_digests
from dance_flwr.disk import write_json
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import commitment


def seal(folder: RunFolder, salt: str) -> str:
    """Return a hash of all files of a run's evidence, and write their digests beside them."""
    files = _files(folder)
    # A server may ask about a run that this client took no part in: write nothing.
    if files:
        write_json(folder.seal_path, files)
    # Why (decision 20): without the salt, a server that knows all but one label of a graph could
    # try each label and compare hashes.
    return commitment({"salt": salt, "files": files})


def verify_seal(folder: RunFolder, salt: str, expected: str) -> None:
    """Compare a run's evidence with the hash that the server holds.

    Raises
    ------
    UserError : names the file that was altered, added or removed
    """
    files = _files(folder)
    # Only the server's hash counts, as the digests could be rewritten together with the packs.
    if commitment({"salt": salt, "files": files}) == expected:
        return
    try:
        sealed = dict(json.loads(folder.seal_path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        sealed = {}
    changed = [name for name in sorted({*sealed, *files}) if sealed.get(name) != files.get(name)]
    name = changed[0] if changed else ""
    states = {name not in files: "none", name not in sealed: "one that was not sealed"}
    raise UserError(
        f"{folder.evidence_folder / name}: expected what the record of the run sealed, "
        f"{expected[:12]}, found {states.get(True, 'another')}; it was altered after the run"
    )


def _files(folder: RunFolder) -> dict[str, str]:
    if not folder.evidence_folder.is_dir():
        return {}
    return file_digests(folder.evidence_folder)
