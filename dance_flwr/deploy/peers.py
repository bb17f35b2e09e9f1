"""The file of all nodes' public keys, with which nodes check what others sign."""

from collections.abc import Sequence
from pathlib import Path

from dance_flwr.disk import write_new
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.signatures import fingerprint_of, load_public_key, peer_lines

_HEAD = "# The public key of every client: its number, then the line of its node's .pub file.\n"


def write_peer_keys(out: Path, publics: Sequence[Path]) -> list[str]:
    """Write the keys of clients 0, 1, ... to a new file; return their fingerprints.

    Parameters
    ----------
    publics : the .pub files that `make_key` wrote at each node, in the order of client numbers

    Raises
    ------
    UserError : a file is missing or no public key, two are the same, or `out` exists
    """
    loaded = {
        client: load_public_key(_read(path), str(path)) for client, path in enumerate(publics)
    }
    content = _HEAD + peer_lines(loaded)
    try:
        # Public keys are no secret, so the umask decides. A file is never replaced: nodes trust it.
        write_new({out: (content.encode(), 0o666)})
    except FileExistsError:
        raise UserError(
            f"--out: expected a new file, found {out}; choose another name or remove it"
        ) from None
    except OSError as error:
        raise UserError(
            f"--out: expected to write {out}, found {error.strerror}; choose another place"
        ) from None
    return [fingerprint_of(key) for key in loaded.values()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"expected a node's public key at {path}, found {error.strerror}; ask the node's "
            "operator for the .pub file"
        ) from None
