"""The configuration as text: read TOML and KEY=VALUE pairs; write TOML and tables.

`python -m dance_flwr.config.text` prints the block of pyproject.toml, `dance-flwr list keys` the
tables.
"""

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dance_flwr.config.options import BOUNDS, Value, leaves_of
from dance_flwr.config.paths import shipped
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.sections import PrivacyConfig, StartConfig
from dance_flwr.config.tree import RunConfig, defaults, flatten, paper_values, parse
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
        except (ValueError, RecursionError) as error:  # also for too many digits, and nesting
            raise UserError(f"--config {path}: expected valid TOML, found: {error}") from None
    for pair in pairs:
        key, _, text = pair.partition("=")
        values[key.strip()] = _scalar(text.strip())
    return values


def flat_keys(table: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested tables as flat keys, joined by dots."""
    flat: dict[str, Value] = {}
    for key, value in table.items():
        inner = isinstance(value, dict)
        flat |= flat_keys(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return flat


def _scalar(text: str) -> Value:
    try:
        table = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    value = table["x"]
    # A line break in the text may start a second key; dates and lists are not values of a key.
    return value if len(table) == 1 and isinstance(value, bool | int | float | str) else text


def to_toml(config: RunConfig, table: str = "") -> str:
    """Return `config` as TOML for `--config` and `flwr run --run-config`."""
    return "\n".join(to_lines(flatten(config), table)) + "\n"


def to_lines(values: Mapping[str, Value | Sequence[str]], table: str = "") -> list[str]:
    """Return flat keys as lines of TOML; keys with a dot follow the others, in tables."""
    tables: dict[str, list[str]] = {"": [f"[{table}]"] if table else []}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        head = f"[{table}.{section}]" if table else f"[{section}]"
        tables.setdefault(section, ["", head]).append(f"{name} = {toml_value(value)}")
    return [line for lines in tables.values() for line in lines]


def toml_block(method: str = "") -> str:
    """Return the `[tool.flwr.app.config]` block of pyproject.toml: all defaults of this package.

    With a `method` of another package also those of its sections, which no other run carries to a
    node.

    Under `flwr run` there are as many clients as SuperNodes, where the key is not set: 0.
    """
    specs = [METHODS.get(name) for name in filter(None, (*METHODS.builtin, method))]
    own = {section.name for spec in specs for section in spec.sections} | {"", "privacy"}
    values = {key: value for key, value in defaults().items() if key.rpartition(".")[0] in own}
    return "\n".join(to_lines(values | {"clients": 0}, "tool.flwr.app.config"))


def common_tables() -> str:
    """Return the keys of every run in Markdown, a table a section."""
    kinds = [kind for kind in reversed(RunConfig.__mro__[1:-1]) if kind is not StartConfig]
    titles = {kind: kind.__name__.removesuffix("Config") for kind in (*kinds, PrivacyConfig)}
    return "\n\n".join(_table(f"## {title}", kind) for kind, title in titles.items())


def method_tables(methods: Collection[str]) -> str:
    """Return the sections of these methods in Markdown, each once and with all who read it."""
    specs = METHODS.all()
    sections = dict.fromkeys(section for name in methods for section in specs[name].sections)
    tables = []
    for section in sections:
        readers = [name for name, spec in specs.items() if section in spec.sections]
        first_line = (section.__doc__ or "").partition("\n")[0]
        about = f"{first_line} Methods: {', '.join(readers)}."
        tables.append(_table(f"### {section.name}", section, about))
    return "\n\n".join(tables)


def all_tables() -> str:
    """Return every key in Markdown, and what `paper = true` sets; the content of the docs' page."""
    values = paper_values({"paper": True})
    paper = ", ".join(f"`{key}={toml_value(value)}`" for key, value in values.items())
    paper = f"### `paper = true`\n\nIt sets {paper}; the last follows `dance.hop2-budget`."
    return "\n\n".join([common_tables(), paper, "## Methods", method_tables(METHODS.names())])


def _table(title: str, kind: type, about: str = "") -> str:
    rows = ["| key | default | accepts | meaning |", "| --- | --- | --- | --- |"]
    for key, item in leaves_of(kind).items():
        limits = [f"{sign}{item.metadata[n]:g}" for n, sign, _ in BOUNDS if n in item.metadata]
        accepts = ", ".join(item.metadata["choices"]) or " ".join(
            [type(item.default).__name__, *limits]
        )
        default = toml_value(defaults()[key])
        rows.append(f"| `{key}` | `{default}` | {accepts} | {item.metadata['help']} |")
    return "\n".join([title, "", *([about, ""] if about else []), *rows])


def toml_value(value: Value | Sequence[str]) -> str:
    """Return a value as TOML."""
    if isinstance(value, float):
        return repr(value)
    # JSON is TOML here, except that TOML requires DEL to be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


if __name__ == "__main__":
    print(toml_block())
