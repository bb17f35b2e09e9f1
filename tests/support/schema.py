"""The schema of what one release writes and another one reads: messages, the state of runs, packs.

A schema is a set of lines "place/name: type". Numbers of rounds, clients and nodes in names are
written as <n>.
"""

import ast
import json
import re

import numpy as np
from flwr.app import Array
from safetensors import safe_open

from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey
from support.project import PROJECT


def of_messages(messages):
    """The entries of messages: type, stage of a masked sum, direction, record, name, type."""
    lines, stages, model = set(), {}, None
    for message in messages:
        about = message.metadata
        way, node = ("up", about.src_node_id) if about.src_node_id else ("down", about.dst_node_id)
        records = dict(message.content) if message.has_content() else {}
        if way == "down":
            stages[node] = records.get(SECAGG_CONFIGS, {}).get(SecAggKey.STAGE)
        place = " ".join(filter(None, (about.message_type, stages[node], way)))
        for name, record in records.items():
            entries = {f"/{key}: {value}" for key, value in of_mapping(record).items()}
            if name == "arrays":  # most travel with every message to train or evaluate
                model = model or entries
            if name == "arrays" and entries == model:
                lines |= {f"model{entry}" for entry in model} | {f"{place} arrays: the model"}
            else:
                lines |= {f"{place} {name}: {type(record).__name__}"}
                lines |= {f"{place} {name}{entry}" for entry in entries}
    return lines


def of_file(path):
    """The entries of a file that a run keeps; of JSON in it, too."""
    entries = {}
    if path.suffix == ".npz":
        with np.load(path) as file:
            entries = of_mapping(file)
    elif path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = dict(file.metadata() or {})
        rows = tensors.get("history", np.empty(0, np.uint8)).tobytes().decode().splitlines()
        entries = of_mapping(tensors) | of_mapping(texts)
        texts.pop("config", None)  # its keys are those of every message
        for name, text in [*texts.items(), *(("history", row) for row in rows)]:
            entries |= of_json(name, text)
    elif path.suffix in (".json", ".jsonl"):
        for text in (
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        ):
            entries |= of_json("", text)
    return {f"{named(path.name)}/{name}: {kind}" for name, kind in entries.items()} or {
        named(path.name)
    }


def of_json(name, text):
    """The entries of a JSON object, whose names are joined by dots; none of any other text."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return of_object(name, value) if isinstance(value, dict) else {}


def of_object(name, value):
    if not isinstance(value, dict):
        return {name: type_of(value)}
    items = [of_object(f"{name}.{named(key)}".strip("."), item) for key, item in value.items()]
    return {key: kind for part in items for key, kind in part.items()} or {name: "dict"}


def of_mapping(values):
    return {named(key): type_of(value) for key, value in values.items()}


def type_of(value):
    if isinstance(value, Array):
        value = value.numpy()
    if isinstance(value, np.ndarray):  # the width of texts depends on the texts
        return f"{'str' if value.dtype.kind == 'U' else value.dtype}, {value.ndim} dimensions"
    if isinstance(value, list) and value:
        return f"list of {', '.join(sorted({type_of(item) for item in value}))}"
    return type(value).__name__


def named(key):
    return re.sub(r"(?<=-)\d+|^-?\d+$", "<n>", str(key))


def of_client_app():
    """What `client_app.py`, which the server sends to the nodes, uses of the package there."""
    tree, modules, names = ast.parse((PROJECT / "client_app.py").read_text("utf-8")), {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dance_flwr"):
            modules |= {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names |= {f"{place}.{node.attr}" for place in [modules.get(node.value.id)] if place}
    return set(modules.values()) | names
