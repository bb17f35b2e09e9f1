"""Write the configuration as text: TOML, the block of pyproject.toml, the tables of the docs.

`python -m dance_flwr.config.text` prints the block, `dance-flwr config` the tables.
"""

import json
from collections.abc import Mapping
from typing import Any

from dance_flwr.config.options import BOUNDS, FlatFields, Value, choices_of
from dance_flwr.config.tree import RunConfig, flat_fields, flatten, sections_of_keys


def to_toml(config: RunConfig, table: str = "") -> str:
    """Return `config` as TOML for `--config` and `flwr run --run-config`.

    Parameters
    ----------
    table : name of the TOML table that holds the keys; empty = the top level
    """
    return "\n".join(to_lines(flatten(config), table)) + "\n"


def to_lines(values: Mapping[str, Value], table: str = "") -> list[str]:
    """Return flat keys as lines of TOML; keys with a dot follow the others, in tables."""
    tables: dict[str, list[str]] = {"": [f"[{table}]"] if table else []}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        head = f"[{table}.{section}]" if table else f"[{section}]"
        tables.setdefault(section, ["", head]).append(f"{name} = {toml_value(value)}")
    return [line for lines in tables.values() for line in lines]


def toml_block() -> str:
    """Return the `[tool.flwr.app.config]` block of pyproject.toml, with all defaults."""
    return to_toml(RunConfig(), "tool.flwr.app.config").strip()


def markdown_tables() -> str:
    """Return the configuration in Markdown, a table a section: key, default, accepts, meaning."""
    defaults = flatten(RunConfig())
    return "\n\n".join(_section(*section, defaults) for section in sections_of_keys())


def _section(title: str, about: str, keys: FlatFields, defaults: Mapping[str, Value]) -> str:
    rows = ["| key | default | accepts | meaning |", "| --- | --- | --- | --- |"]
    for key, (item, kind) in keys.items():
        rules = item.metadata
        limits = [f"{sign} {rules[name]:g}" for name, sign, _ in BOUNDS if rules[name] is not None]
        accepts = ", ".join(choices_of(item)) or " and ".join([kind.__name__, *limits])
        rows.append(f"| `{key}` | `{toml_value(defaults[key])}` | {accepts} | {rules['help']} |")
    return "\n".join([f"## {title}", "", about, "", *rows])


def json_schema() -> str:
    """Return the JSON Schema (2020-12) of a configuration file, a table for each section."""
    defaults, root = flatten(RunConfig()), _table("dance-flwr configuration")
    root = {"$schema": "https://json-schema.org/draft/2020-12/schema", **root}
    for key, (item, kind) in flat_fields().items():
        section, _, name = key.rpartition(".")
        place = root["properties"]
        if section:
            place = place.setdefault(section, _table(section))["properties"]
        rules = item.metadata
        entry = {"type": _JSON_TYPES[kind], "description": rules["help"], "default": defaults[key]}
        bounds = {word: rules[rule] for rule, word in _JSON_BOUNDS.items()}
        entry |= {word: bound for word, bound in bounds.items() if bound is not None}
        if choices := choices_of(item):
            entry["enum"] = list(choices)
        place[name] = entry
    return json.dumps(root, indent=2)


_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_JSON_BOUNDS = {
    "above": "exclusiveMinimum",
    "least": "minimum",
    "most": "maximum",
    "below": "exclusiveMaximum",
}


def _table(title: str) -> dict[str, Any]:
    return {"title": title, "type": "object", "additionalProperties": False, "properties": {}}


def toml_value(value: Value) -> str:
    """Return a value as TOML; JSON strings are TOML strings."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    print(toml_block())
