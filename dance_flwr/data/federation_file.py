"""`federation.toml`: what all nodes of a federation agree on."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dance_flwr.config.sections import DataConfig
from dance_flwr.config.text import to_lines
from dance_flwr.data.card import read_card
from dance_flwr.data.checks import check_classes
from dance_flwr.data.text.bank_slice import META, read_meta
from dance_flwr.data.text.chunking import CHUNKER_VERSION
from dance_flwr.errors import DataError, UserError, reason_of
from dance_flwr.fingerprint import PROTOCOL

FORMAT = 1
_AGAIN = "ask the server operator for the file that `dance-flwr deploy init` wrote"


@dataclass(frozen=True)
class Agreement:
    """Requirements for every node's data and software.

    Attributes
    ----------
    class_names : names of the classes in the order of their numbers
    text_width : length of a text embedding
    encoder, encoder_sha256 : name of the text encoder and sha256 of its weights
    chunk_tokens, max_chunks, chunker_version : settings of the chunker
    protocol : number of the messages and of the state of runs
    dance_flwr, flwr : versions of the two packages

    The metadata of an attribute is its key in the file, behind its table.
    """

    class_names: tuple[str, ...] = field(metadata={"key": "class-names"})
    text_width: int = field(metadata={"key": "text-width"})
    encoder: str = field(metadata={"key": "encoder.name"})
    encoder_sha256: str = field(metadata={"key": "encoder.sha256"})
    chunk_tokens: int = field(metadata={"key": "chunks.tokens"})
    max_chunks: int = field(metadata={"key": "chunks.most-per-node"})
    chunker_version: int = field(default=CHUNKER_VERSION, metadata={"key": "chunks.version"})
    protocol: int = field(default=PROTOCOL, metadata={"key": "software.protocol"})
    dance_flwr: str = field(
        default_factory=lambda: installed_version("dance-flwr"),
        metadata={"key": "software.dance-flwr"},
    )
    flwr: str = field(
        default_factory=lambda: installed_version("flwr"), metadata={"key": "software.flwr"}
    )


_KEYS = {entry.name: entry.metadata["key"] for entry in fields(Agreement)}


def agree(folder: Path) -> Agreement:
    """Return the agreement that follows from a client folder and the installed code."""
    card = read_card(folder)
    if not (folder / "text" / META).is_file():
        raise DataError(
            f"{folder}: expected encoded texts, found none; copy the client's folder again, or "
            "prepare it again"
        )
    meta = read_meta(folder / "text")
    try:
        return Agreement(
            card.class_names,
            int(meta["dim"]),
            str(meta["encoder"]),
            str(meta["weights_sha256"]),
            int(meta["chunk_tokens"]),
            int(meta["max_chunks"]),
            int(meta["chunker_version"]),
        )
    except KeyError as error:
        raise DataError(
            f"{folder / 'text' / META}: expected {error}, found none; prepare the folder again"
        ) from None


def new_agreement(class_names: Sequence[str], config: DataConfig) -> Agreement:
    """Return the agreement on these classes, with the encoder and the chunks of a configuration.

    Raises
    ------
    DataError : a server would refuse the classes, or the encoder is not on this machine
    """
    from dance_flwr.data.text.encoder import resolve_encoder

    check_classes(class_names)
    encoder = resolve_encoder(config.encoder, "float32", config.encoder_sha256)
    return Agreement(
        tuple(class_names),
        encoder.dim,
        config.encoder,
        encoder.weights_sha256,
        config.chunk_tokens,
        config.max_chunks,
    )


def agreement_text(agreement: Agreement) -> str:
    """Return an agreement as TOML."""
    head = (
        "# What all nodes of this federation agreed on. "
        "`dance-flwr site join` compares a node with it."
    )
    values = {key: getattr(agreement, name) for name, key in _KEYS.items()}
    return "\n".join([head, *to_lines({"format": FORMAT, **values})]) + "\n"


def read_agreement(path: Path) -> Agreement:
    """Read an agreed federation file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"expected the agreed file {path}, found none; {_AGAIN}") from None
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        raise UserError(f"{path}: expected TOML, found {reason_of(error)}; {_AGAIN}") from None
    if content.get("format") != FORMAT:
        raise UserError(
            f"{path}: expected format = {FORMAT}, found {content.get('format')!r}; "
            "use the dance-flwr of the server operator"
        )
    values: dict[str, Any] = {}
    for entry in fields(Agreement):
        table, _, key = _KEYS[entry.name].rpartition(".")
        place = content.get(table, {}) if table else content
        value = place.get(key) if isinstance(place, dict) else None
        kind = list if entry.name == "class_names" else entry.type
        # By `type`, as a bool is an int for isinstance.
        if type(value) is not kind or (
            kind is list and not all(isinstance(name, str) for name in value)
        ):
            expected = "a list of strings" if kind is list else kind.__name__  # type: ignore[union-attr]
            raise UserError(
                f"{path}: expected {expected} as {_KEYS[entry.name]}, found {value!r}; {_AGAIN}"
            )
        values[entry.name] = tuple(value) if kind is list else value
    return Agreement(**values)


def class_mismatch(agreed: tuple[str, ...], names: tuple[str, ...]) -> str:
    """Describe how class names differ from the agreed ones; "" if they do not."""
    unknown = list((Counter(names) - Counter(agreed)).elements())
    missing = list((Counter(agreed) - Counter(names)).elements())
    differences = [
        f"{what} {', '.join(map(repr, listed))}"
        for what, listed in (("unknown", unknown), ("missing", missing))
        if listed
    ]
    if not differences and agreed != names:
        first = next(
            i for i, (one, other) in enumerate(zip(agreed, names, strict=True)) if one != other
        )
        differences = [
            f"the same names in another order (class {first} is {names[first]!r}, "
            f"agreed is {agreed[first]!r})"
        ]
    return "; ".join(differences)


def installed_version(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
