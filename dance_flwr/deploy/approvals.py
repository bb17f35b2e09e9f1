"""The code that a site's operator has accepted, and the code that waits to be."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from dance_flwr.disk import append_to
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import VERSION, provenance

# Lines of a digest and what it stands for.
_ACCEPTED, _REFUSED = "accepted-code", "refused-code"


class Approvals:
    """Digests of code in a site's folder: of installed releases, and of bundles that differ.

    Parameters
    ----------
    folder : of the site
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def accepted(self) -> Mapping[str, str]:
        """Digest -> what the operator accepted, and when."""
        return self._read(_ACCEPTED)

    @property
    def waiting(self) -> Mapping[str, str]:
        """Digest -> what it is, of code that nobody has accepted: installed, or refused."""
        codes = {provenance(): f"dance-flwr {VERSION} as installed"} | self._read(_REFUSED)
        return {digest: what for digest, what in codes.items() if digest not in self.accepted}

    def accept(self, digest: str) -> str:
        """Accept code that waits; return what it is.

        Raises
        ------
        UserError : no code of this digest waits
        """
        if (what := self.waiting.get(digest)) is None:
            listed = ", ".join(self.waiting) or "none"
            raise UserError(f"expected a digest that waits ({listed}), found {digest!r:.40}")
        self._append(_ACCEPTED, digest, f"{what}; accepted {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        return what

    def refused(self, digest: str, reason: str) -> None:
        """Remember code that a run was refused for, once."""
        if digest not in self._read(_REFUSED):
            self._append(_REFUSED, digest, reason)

    def check_installed(self) -> None:
        """Check that the operator has accepted the installed code.

        Raises
        ------
        UserError : it is of another provenance than all accepted ones
        """
        # Why (decision 29): a node runs installed code alone, so this is all that it runs.
        if (digest := provenance()) not in self.accepted:
            raise UserError(
                f"{self.folder / _ACCEPTED}: expected code that was accepted, found dance-flwr "
                f"{VERSION} with provenance {digest}; read its changelog, then run `dance-flwr "
                f"site accept {digest}`"
            )

    def _read(self, name: str) -> dict[str, str]:
        path = self.folder / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {digest: what for digest, _, what in (line.partition(" ") for line in lines)}

    def _append(self, name: str, digest: str, what: str) -> None:
        with append_to(self.folder / name) as file:
            file.write(f"{digest} {' '.join(what.split())}\n".encode())
