"""Write the configuration as text: TOML, the block of pyproject.toml, tables, a JSON Schema.

`python -m dance_flwr.config.text` prints the block, `dance-flwr config` the tables.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dance_flwr.config.options import BOUNDS, FlatFields, Value, choices_of, leaves_of
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.sections import StartConfig
from dance_flwr.config.tree import (
    RunConfig,
    common_sections,
    defaults,
    flat_fields,
    flatten,
    paper_values,
)


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
    """Return the keys that a run of any method may need in Markdown, a table a section."""
    tables = [_table(title, _basic(keys)) for title, keys in common_sections().items()]
    return "\n\n".join(tables)


def method_tables(methods: Collection[str]) -> str:
    """Return the sections of these methods in Markdown, each once and with all who read it."""
    specs = METHODS.all()
    sections = dict.fromkeys(section for name in methods for section in specs[name].sections)
    tables = []
    for section in sections:
        readers = [name for name, spec in specs.items() if section in spec.sections]
        about = f"{_first_line(section)} Methods: {', '.join(readers)}."
        tables.append(_short_table(section.name, about, leaves_of(section, f"{section.name}.")))
    return "\n\n".join(tables)


def all_tables() -> str:
    """Return every key in Markdown, and what `paper = true` sets; the content of the docs' page."""
    keys = {key: leaf for part in common_sections().values() for key, leaf in part.items()}
    rest = {key: leaf for key, leaf in keys.items() if key not in _basic(keys)}
    about = "Keys of studies and tests, or that rarely need a change."
    values = paper_values({"paper": True})
    paper = ", ".join(f"`{key}={toml_value(value)}`" for key, value in values.items())
    return "\n\n".join(
        [
            common_tables(),
            _short_table("Advanced", about, rest),
            f"### `paper = true`\n\nIt sets {paper}; the last follows `dance.hop2-budget`.",
            "## Methods",
            method_tables(METHODS.names()),
        ]
    )


def _basic(keys: FlatFields) -> FlatFields:
    return {key: leaf for key, leaf in keys.items() if not leaf[0].metadata["advanced"]}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _table(title: str, keys: FlatFields) -> str:
    """Return a table of key, default, accepted values and meaning."""
    values = defaults()
    rows = ["| key | default | accepts | meaning |", "| --- | --- | --- | --- |"]
    for key, (item, kind) in keys.items():
        limits = [
            f"{sign}{item.metadata[name]:g}" for name, sign, *_ in BOUNDS if name in item.metadata
        ]
        accepts = ", ".join(choices_of(item)) or " ".join([kind.__name__, *limits])
        help_ = item.metadata["help"]
        rows.append(f"| `{key}` | `{toml_value(values[key])}` | {accepts} | {help_} |")
    return "\n".join([f"## {title}", "", *rows])


def _short_table(title: str, about: str, keys: FlatFields) -> str:
    """Return a table of key with default, and meaning; `--schema` has the bounds."""
    values = defaults()
    rows = ["| key=default | meaning |", "| --- | --- |"]
    for key, (item, _) in keys.items():
        choices = choices_of(item)
        among = f" ({'/'.join(choices)})" if choices else ""
        rows.append(f"| `{key}={toml_value(values[key])}` | {item.metadata['help']}{among} |")
    return "\n".join([f"### {title}", "", about, "", *rows])


def json_schema() -> str:
    """Return the JSON Schema (2020-12) of a configuration file, a table for each section."""
    values, root = defaults(), _schema_of("dance-flwr configuration")
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", **root}
    for key, (item, kind) in flat_fields().items():
        # No file may set these keys.
        if key in leaves_of(StartConfig):
            continue
        section, _, name = key.rpartition(".")
        place = root["properties"]
        if section:
            place = place.setdefault(section, _schema_of(section))["properties"]
        rules = item.metadata
        entry = {"type": _JSON_TYPES[kind], "description": rules["help"], "default": values[key]}
        entry |= {word: rules[rule] for rule, _, word, _ in BOUNDS if rule in rules}
        if choices := choices_of(item):
            entry["enum"] = list(choices)
        place[name] = entry
    return json.dumps(root, indent=2)


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema_of(title: str) -> dict[str, Any]:
    # No further properties: an editor marks a misspelt key.
    return {"title": title, "type": "object", "additionalProperties": False, "properties": {}}


def toml_value(value: Value | Sequence[str]) -> str:
    """Return a value as TOML."""
    if isinstance(value, float):
        return repr(value)
    # JSON is TOML here, except that TOML requires DEL to be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


if __name__ == "__main__":
    print(toml_block())
