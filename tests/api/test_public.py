"""The face of the API: no Flower where none is needed, types for users, nothing heavy at import."""

import subprocess
import sys

import pytest
from support.project import PROJECT

import dance_flwr.api as api

BLOCKED = """
import sys


class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("flwr", "ray", "typer"):
            raise ImportError(f"{name} is not installed")


sys.meta_path.insert(0, Block())
"""

USER = """
from pathlib import Path

from dance_flwr.api import (
    Core, Evidence, Predictions, Result, TextGraph, condense, explain, federate, load, load_graph
)

graph: TextGraph = load_graph("pydocs")
core: Core = condense(graph, ratio_of_nodes=0.1, config={"dance": {"mix": 0.5}}, seed=1)
result: Result = federate([graph, graph], {"rounds": 2}, out="runs/a", progress=False)
predictions: Predictions = load(Path("bundle")).predict(graph)
names: list[str] = predictions.predicted
evidence: Evidence = explain(result, graph, ["a", "b"])
texts: list[str] = [span.text for node in evidence for span in node.spans]
more: Evidence = result.model.explain(graph, [0, 1])
"""
# Of the libraries nothing is read, which would take a minute: their types are no part of the API.
MYPY = """
[mypy]
strict = True
follow_imports = silent

[mypy-torch.*,torch_geometric.*,numpy.*,flwr.*,transformers.*,sentence_transformers.*,pyarrow.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
MISTAKES = {
    "condense(graph, 0.1)": "Too many positional arguments",
    "condense(graph, ratio=0.1)": "Unexpected keyword argument",
    "evidence[0].span": "has no attribute",
    "predictions.names": "has no attribute",
}


def test_condense_explain_and_load_need_no_flower(dance, model, tmp_path):
    """In a process where Flower cannot be imported."""
    code = f"""{BLOCKED}
from dance_flwr.api import condense, explain, load, load_graph, UserError
graph = load_graph({str(dance.partition / "client-1")!r})
model = load({str(model.bundle.folder)!r})
assert len(model.predict(graph)) == graph.num_nodes
assert explain(model, graph, 0)[0].spans
assert len(condense(graph, ratio_of_nodes=0.2, model=model)) > 0
from dance_flwr.api import federate
try:
    federate(graph, {{"rounds": 1, "clients": 1}}, out={str(tmp_path / "run")!r}, progress=False)
except ImportError as error:
    print("Flower:", error)
print([name for name in sys.modules if name.partition(".")[0] == "flwr"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["Flower: flwr is not installed", "[]"]


def test_the_import_takes_nothing_heavy():
    heavy = ("torch", "torch_geometric", "transformers", "sklearn", "scipy", "flwr", "jinja2")
    code = f"import dance_flwr.api, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", api.__all__)
def test_every_public_name_is_there_and_documented(name):
    found = getattr(api, name)
    assert found.__doc__ and found.__doc__.strip() and name in dir(api)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'condence'"):
        api.condence  # noqa: B018


def test_a_user_s_script_is_checked_by_its_types(tmp_path):
    """mypy with `py.typed`: the right use passes, and each mistake is found."""
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(USER, encoding="utf-8")
    bad.write_text(USER + "\n".join(MISTAKES) + "\n", encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(MYPY, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini")]
    command += ["--cache-dir", str(tmp_path / "cache"), str(good), str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert not any(line.startswith(str(good)) or "good.py" in line for line in found), done.stdout
    first = len(USER.splitlines()) + 1
    for number, message in enumerate(MISTAKES.values(), start=first):
        assert any(f"bad.py:{number}: error" in line and message in line for line in found), found
