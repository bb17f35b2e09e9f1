"""The secret of a server, which shows that a checkpoint is its own."""

import hmac
import os
from pathlib import Path

from dance_flwr.config.paths import state_root
from dance_flwr.disk import PRIVATE_FILE, private_lock, write_new
from dance_flwr.errors import ResumeError

_BYTES = 32  # as many as SHA-256 has


def key_path() -> Path:
    """Return the file of the secret, of this user on this machine."""
    return state_root() / "checkpoint.key"


def keyed_digest(digest: str) -> str:
    """Return the HMAC-SHA256 of a digest in hex; the secret is made if there is none."""
    path = key_path()
    if not path.is_file():
        with private_lock(path.with_name(f".{path.name}.lock")):  # two servers may start at once
            if not path.is_file():
                write_new({path: (os.urandom(_BYTES), PRIVATE_FILE)})
    return _hmac(path, digest)


def is_own(digest: str, keyed: str) -> bool:
    """Whether this server made a keyed digest; without a secret it made none."""
    path = key_path()
    return path.is_file() and hmac.compare_digest(keyed.encode(), _hmac(path, digest).encode())


def _hmac(path: Path, digest: str) -> str:
    facts = path.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o777 & ~PRIVATE_FILE:
        raise ResumeError(
            f"{path}: expected a file of this user alone, mode 600, found mode "
            f"{facts.st_mode & 0o777:o} of user {facts.st_uid}; correct it, or remove it, after "
            "which no interrupted run can be resumed"
        )
    return hmac.new(path.read_bytes(), digest.encode(), "sha256").hexdigest()
