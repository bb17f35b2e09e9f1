"""Digests of a client's data: a flipped bit in a file is noticed before a run reads it."""

import secrets
from dataclasses import asdict, replace
from pathlib import Path

from dance_flwr.data.card import CARD, EDGE_TEXTS, ClientCard, read_card
from dance_flwr.disk import write_json
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import commitment, file_sha256

# Runs leave the rest.
_DATA = ("nodes.parquet", "edges.parquet", EDGE_TEXTS, "arrays", "text")


def file_digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder, by its path in it; drafts have none."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        name.as_posix(): file_sha256(folder / name)
        # Sorted: the card is the same on every file system.
        for name in sorted(names)
        if not any(part.startswith(".") for part in name.parts)
    }


def data_digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a client's data, by its path in the client's folder."""
    digests: dict[str, str] = {}
    for part in _DATA:
        if (path := folder / part).is_dir():
            digests |= {f"{part}/{name}": sha256 for name, sha256 in file_digests(path).items()}
        elif path.is_file():
            digests[part] = file_sha256(path)
    return digests


def write_card(folder: Path, card: ClientCard) -> None:
    """Write the card of a complete client folder, with the digests of its files.

    The salt is new: what a server learns of the card is a hash that nobody can look up.
    """
    # Why (decision 20): without a salt, a server that knows all but one label could try each.
    whole = replace(card, files=data_digests(folder), salt=secrets.token_hex(32))
    write_json(folder / CARD, asdict(whole))


def check_files(folder: Path) -> ClientCard:
    """Read every file of a client's data, compare it with the card, and return the card."""
    card = read_card(folder)
    digests = data_digests(folder)
    for name, digest in card.files.items():
        if digests.get(name) != digest:
            state = "another" if name in digests else "none"
            raise DataError(
                f"{folder / name}: expected the file that {CARD} describes, found {state}; it was "
                "damaged or altered: copy the client's folder again, or prepare it again"
            )
    return card


def data_commitment(card: ClientCard) -> str:
    """Return what the record of a run holds of a client's data: a hash of its card.

    It fixes every byte of the client's files and reveals none of them, even to someone who knows
    all but one: the card has a salt of 256 bits.
    """
    return commitment(asdict(card))
