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
