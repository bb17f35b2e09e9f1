"""The shape of the project: what may import Flower, how large things may be, and that documents
name real code.
"""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.project import PROJECT

SOURCES = sorted((PROJECT / "dance_flwr").rglob("*.py"))
APPS = [PROJECT / "client_app.py", PROJECT / "server_app.py"]
FLOWER_SIDE = (
    "packing",
    "messages",
    "client_tasks",
    "strategies/",
    "runtime",
    "privacy/client",
    "privacy/server",
    "privacy/ledger",
    "deploy/registration",
)


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_only_the_edge_imports_flower(path):
    part = path.relative_to(PROJECT / "dance_flwr").with_suffix("").as_posix()
    assert part.startswith(FLOWER_SIDE) or "flwr" not in imported(path)


def test_the_client_app_starts_without_torch():
    heavy = ("torch", "torch_geometric", "transformers", "sklearn", "scipy")
    code = f"import client_app, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", [*SOURCES, *APPS], ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_files_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= (100 if path in APPS else 300)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node, clean=False)
            size = (
                node.end_lineno - node.lineno - (len(documented.splitlines()) if documented else 0)
            )
            assert size <= 50, f"{node.name} has {size} lines"


def test_paper_map_names_real_code_and_real_tests():
    rows = re.findall(
        r"^\| (.+?) \| `([\w.]+):([\w.]+)` \| `(tests/[\w/]+\.py)::(\w+)` \|$",
        paper_map(),
        re.MULTILINE,
    )
    assert len(rows) >= 20
    for what, module, attribute, file, test in rows:
        value = import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
        assert f"def {test}(" in (PROJECT / file).read_text(encoding="utf-8"), (
            f"{what}: {file}::{test}"
        )


def test_paper_map_covers_every_equation_of_the_method():
    labels = (
        "text_encoder federated_update pseudo_label proto_score neighbor_score neighbor_gating hier_context "
        "chunk_similarity agg_text fused_embed fusion_train_loss candidate_set self_expressive_sparse adjacency "
        "difficulty text_pool topk_select hard_2hop"
    )
    missing = [label for label in labels.split() if f"eq:{label}" not in paper_map()]
    assert not missing


def paper_map() -> str:
    return (PROJECT / "docs" / "paper-map.md").read_text(encoding="utf-8")
