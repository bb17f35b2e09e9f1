"""Read the configuration from TOML files, KEY=VALUE pairs and named options."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.options import Value
from dance_flwr.config.paths import shipped
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.errors import UserError


def read_config(
    files: Sequence[Path], pairs: Sequence[str], named: Mapping[str, Value]
) -> RunConfig:
    """Merge TOML files, KEY=VALUE pairs and named options, in this order; later sources win.

    Raises
    ------
    UserError : a file is missing or not valid TOML, or a pair has no "="
    ConfigError : unknown keys or values out of range, all in one message
    """
    return parse(read_values(files, pairs) | dict(named))


def read_values(files: Sequence[Path], pairs: Sequence[str]) -> dict[str, Value]:
    """Return the flat keys of TOML files and KEY=VALUE pairs, unchecked; later sources win."""
    values: dict[str, Value] = {}
    paths = [shipped(path) for path in files]
    if absent := [str(path) for path in paths if not path.is_file()]:
        raise UserError(f"--config: expected a TOML file, found none at {', '.join(absent)}")
    if bare := [pair for pair in pairs if "=" not in pair]:
        raise UserError(f"--set: expected KEY=VALUE, found {', '.join(map(repr, bare))}")
    for path in paths:
        try:
            # Windows editors begin a file with a byte order mark, which TOML does not know.
            values |= flat_keys(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"--config {path}: expected valid TOML, found: {error}") from None
    for pair in pairs:
        key, _, text = pair.partition("=")
        values[key.strip()] = _scalar(text.strip())
    return values


def flat_keys(table: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested tables as flat keys, joined by dots."""
    flat: dict[str, Value] = {}
    for key, value in table.items():
        flat |= (
            flat_keys(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {prefix + key: value}
        )
    return flat


def _scalar(text: str) -> Value:
    """Parse a bool, a number or a quoted string as TOML does; any other text is a string."""
    try:
        table = tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = table["x"]
    # A line break in the text may start a second key; dates and lists are no values of a key.
    return value if len(table) == 1 and isinstance(value, bool | int | float | str) else text
