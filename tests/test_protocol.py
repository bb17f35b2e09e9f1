"""What may change without PROTOCOL, and what may not.

The schema of every message, of the state of runs and of packs stands in `golden/schema.json`: a set
of lines "place/name: type", in which numbers of rounds, clients and nodes are written as <n>. Keys
of a run are compared by name and are no part of it.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
from flwr.app import Array
from safetensors import safe_open
from support.graphs import EVERY_ROUND
from support.killing import Killed, asks
from support.node import Node
from support.outside.toy_method import METHOD
from support.project import PROJECT

import dance_flwr
from dance_flwr.config.plugins import BACKBONES, METHODS, STRATEGIES
from dance_flwr.config.tree import flat_fields
from dance_flwr.federation.flower import SECAGG_CONFIGS, SecAggKey
from dance_flwr.federation.wire import messages

GOLDEN = PROJECT / "tests" / "golden" / "schema.json"
UPDATE = "python -m pytest tests/test_protocol.py --update-golden"
BASE = "fedavg-full"  # what others add or lack stands with them

FAST = {"rounds": 2, "local_epochs": 1}
ADAPTIVE = {"privacy_dp": "central", "privacy_clipping": "adaptive"}
NOISE = {"privacy_noise_multiplier": 4.0, "privacy_epsilon": 500.0}
RUNS = {
    name: {"method": name} | (EVERY_ROUND if name == "dance" else {}) for name in METHODS.builtin
}
RUNS |= {
    f"{key} {value}": {"method": BASE, key: value}
    for key, values in {
        "strategy": STRATEGIES.names(),
        "backbone": BACKBONES.names(),
        "upload_precision": ("int8", "float16"),
        "ema_decay": (0.9,),
    }.items()
    for value in values
}
RUNS |= {
    "central privacy": {"method": BASE} | ADAPTIVE | NOISE,
    "local privacy": {"method": BASE, "privacy_dp": "local"} | NOISE,
    "secure aggregation": {"method": "dance", "privacy_secure_aggregation": True},
}


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


def schema_of(run, folder, **keys):
    """The schema of messages, of state and of packs of a run with these keys."""
    kept = set()

    def see(message):
        """Read the checkpoint while it is there."""
        config = message.content.config_records.get("config", {}) if message.has_content() else {}
        if config.get("final") and not kept:
            kept.update(of_file(folder / "checkpoint.safetensors"))

    finished = run(**FAST, folder=folder, on_message=see, **keys)
    parts = {"messages": of_messages(finished.messages), "state": kept, "packs": set()}
    for client in range(finished.config.clients):
        home = finished.partition / f"client-{client}" / "runs" / finished.result["run"]
        for path in home.rglob("*") if home.is_dir() else ():
            if path.is_file():
                part = "packs" if path.parent.name == "evidence" else "state"
                parts[part] |= of_file(path)
    return parts


def lines_of(schemas):
    """The schemas of runs in short: that of the base, and what each other adds (+) or lacks (-)."""
    parts = {}
    for part in ("messages", "state", "packs"):
        base = schemas[BASE][part]
        parts[part] = {BASE: sorted(base)}
        for name, own in schemas.items():
            lines = [f"+ {line}" for line in own[part] - base]
            lines += [f"- {line}" for line in base - own[part]]
            if lines:
                parts[part][name] = sorted(lines)
    parts["client_app.py"] = sorted(of_client_app())
    return parts


def check(part, lines, golden, number):
    """Fail where the schema of a part is not the recorded one of this PROTOCOL."""
    recorded = golden["schema"][part]
    if lines == recorded and number == golden["protocol"]:
        return
    changes = sorted(set(flat(lines)) ^ set(flat(recorded)))
    shown = "\n".join(
        f"{'new' if line in flat(lines) else 'gone'}: {line}" for line in changes[:20]
    )
    if number == golden["protocol"]:
        raise AssertionError(
            f"the schema of {part} is not that of PROTOCOL {number} in {GOLDEN.name}; raise "
            f"PROTOCOL in dance_flwr/fingerprint.py, then record it with `{UPDATE}`\n{shown}"
        )
    raise AssertionError(
        f"{GOLDEN.name} is of PROTOCOL {golden['protocol']}, not {number}; record the schema with "
        f"`{UPDATE}`\n{shown}"
    )


def flat(lines):
    """Lines with the name of their run in front."""
    if isinstance(lines, list):
        return lines
    return list(chain(*([f"{name}: {line}" for line in own] for name, own in lines.items())))


@pytest.fixture(scope="module")
def current(run, tmp_path_factory, request):
    """The schema of today, recorded with --update-golden."""
    home = tmp_path_factory.mktemp("schemas")
    lines = lines_of({name: schema_of(run, home / name, **keys) for name, keys in RUNS.items()})
    if request.config.getoption("--update-golden"):
        content = {"protocol": dance_flwr.PROTOCOL, "schema": lines}
        GOLDEN.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return lines


@pytest.mark.parametrize("part", ["messages", "state", "packs", "client_app.py"])
def test_a_schema_changes_with_the_protocol_only(current, part):
    check(part, current[part], json.loads(GOLDEN.read_text("utf-8")), dance_flwr.PROTOCOL)


@pytest.fixture(scope="module")
def recorded():
    return json.loads(GOLDEN.read_text("utf-8"))


def test_a_new_key_of_a_message_needs_a_new_protocol(run, recorded, tmp_path, monkeypatch):
    def lines():
        own = schema_of(run, tmp_path / "run", method=BASE, overwrite=True)
        return {BASE: sorted(own["messages"])}

    base = {"protocol": 7, "schema": {"messages": {BASE: recorded["schema"]["messages"][BASE]}}}
    check("messages", lines(), base, 7)
    honest = messages.run_config
    monkeypatch.setattr(messages, "run_config", lambda *facts: honest(*facts) | {"surprise": 1})
    with pytest.raises(AssertionError) as failure:
        check("messages", found := lines(), base, 7)
    text = str(failure.value)
    assert (
        "is not that of PROTOCOL 7" in text
        and "raise PROTOCOL in dance_flwr/fingerprint.py" in text
    )
    assert UPDATE in text and f"new: {BASE}: train down config/surprise: int" in text
    with pytest.raises(AssertionError, match="is of PROTOCOL 7, not 8; record the schema with"):
        check("messages", found, base, 8)
    check("messages", found, {"protocol": 8, "schema": {"messages": found}}, 8)


@pytest.fixture
def with_node(run, tmp_path):
    """A function that runs with client 0 at a node that has other sources."""
    import client_app

    def start(sources, **keys):
        node = Node(sources, tmp_path)

        def app(message, context):
            theirs = context.node_config["partition-id"] == 0
            return (node if theirs else client_app.app)(message, context)

        try:
            return run(app=app, rounds=2, **keys)
        finally:
            node.close()

    return start


@pytest.fixture(scope="module")
def other_docstrings(tmp_path_factory):
    """The sources with a comment, an empty line and one more word in every docstring."""
    folder = tmp_path_factory.mktemp("other")
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "dance_flwr", folder / "dance_flwr", ignore=without)
    for name in ("client_app.py", "server_app.py"):
        shutil.copy(PROJECT / name, folder)
    for path in (folder / "dance_flwr").rglob("*.py"):
        text = re.sub(r'^( *r?""")(?=\w)', r"\1Changed. ", path.read_text("utf-8"), flags=re.M)
        path.write_text(f"# changed\n\n{text}", encoding="utf-8")
    return folder


@pytest.mark.long
def test_a_node_of_other_docstrings_joins_a_server_that_knows_one_more_method(
    with_node, run, other_docstrings, monkeypatch
):
    """Keys of a run are compared by name, so that no method is part of PROTOCOL."""
    alone = run(rounds=2, method=BASE)
    monkeypatch.setitem(METHODS.builtin, "toy-method", METHOD)
    assert "toy.shrink" in flat_fields()
    finished = with_node(other_docstrings, method=BASE)
    assert len(finished.replies("train")) == 6
    assert finished.result["model_fingerprint"] == alone.result["model_fingerprint"]


RUN = """
import json, sys
from pathlib import Path
import dance_flwr
from dance_flwr.config.tree import parse
from dance_flwr.runs.simulation.in_process import run_in_process
assert Path(dance_flwr.__file__).is_relative_to(sys.argv[1]), dance_flwr.__file__
config = parse(json.loads(sys.argv[2]))
run_in_process(config, Path(config.out), lambda row: None)
"""


@pytest.mark.long
def test_a_run_begun_before_a_changed_docstring_resumes_after_it(
    run, run_config, other_docstrings, tmp_path
):
    """Killed in round 3, and resumed by a process of the other sources."""
    from dance_flwr.config.tree import flatten
    from dance_flwr.fingerprint import provenance
    from dance_flwr.runs.result import read_result

    out = tmp_path / "run"
    with pytest.raises(Killed):
        run(folder=out, on_message=asks("train", 3), method=BASE)
    assert (out / "checkpoint.safetensors").is_file()
    config = flatten(run_config(out=str(out), method=BASE, resume=True))
    done = subprocess.run(
        [sys.executable, "-c", RUN, other_docstrings, json.dumps(config)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(other_docstrings)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result, whole = read_result(out), run(method=BASE).result
    assert (result["resumed_after"], len(result["history"])) == ([2], 3)
    assert result["model_fingerprint"] == whole["model_fingerprint"]
    assert result["provenance"] == provenance()
