"""The code that a site's operator has accepted, and the code that waits to be."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from dance_flwr.disk import append_to
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import VERSION, provenance

# Lines of a digest and what it stands for, in a site's folder.
_ACCEPTED, _REFUSED = "accepted-code", "refused-code"


def accepted(folder: Path) -> Mapping[str, str]:
    """Return digest -> what the site's operator accepted: releases, and differences of bundles."""
    return _read(folder / _ACCEPTED)


def waiting(folder: Path) -> Mapping[str, str]:
    """Return digest -> what it is, of code that nobody has accepted: installed, or refused."""
    codes = {provenance(): f"dance-flwr {VERSION} as installed"} | _read(folder / _REFUSED)
    return {digest: what for digest, what in codes.items() if digest not in accepted(folder)}


def accept(folder: Path, digest: str) -> str:
    """Accept code that waits; return what it is.

    Raises
    ------
    UserError : no code of this digest waits
    """
    if (what := waiting(folder).get(digest)) is None:
        listed = ", ".join(waiting(folder)) or "none"
        raise UserError(f"expected a digest that waits ({listed}), found {digest!r:.40}")
    _append(folder / _ACCEPTED, digest, f"{what}; accepted {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    return what


def refuse(folder: Path, digest: str, reason: str) -> None:
    """Remember the code of a run that was refused, once, for the operator to accept."""
    if digest not in _read(folder / _REFUSED):
        _append(folder / _REFUSED, digest, reason)


def check_installed(folder: Path) -> None:
    """Check that the site's operator has accepted the installed code, all that a node runs.

    Raises
    ------
    UserError : it is of another provenance than all accepted ones
    """
    if (digest := provenance()) not in accepted(folder):
        raise UserError(
            f"{folder / _ACCEPTED}: expected code that was accepted, found dance-flwr {VERSION} "
            f"with provenance {digest}; read its changelog, then run `dance-flwr site accept "
            f"{digest}`"
        )


def _read(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {digest: what for digest, _, what in (line.partition(" ") for line in lines)}


def _append(path: Path, digest: str, what: str) -> None:
    with append_to(path) as file:
        file.write(f"{digest} {' '.join(what.split())}\n".encode())
