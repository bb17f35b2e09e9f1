"""The shape of the project: which folder may import which, how large things may be, and that
documents name real code.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from support.budget import BUDGET, lines_of, read_budget
from support.project import PROJECT

pytestmark = pytest.mark.xdist_group("architecture")  # each file is parsed once

PACKAGE = PROJECT / "dance_flwr"
SOURCES = sorted(PACKAGE.rglob("*.py"))
OTHERS = {name: sorted((PROJECT / name).rglob("*.py")) for name in ("rivals", "studies")}
TEST_FOLDERS = [PROJECT / "tests", *(PROJECT / name / "tests" for name in OTHERS)]
TESTS = [path for folder in TEST_FOLDERS for path in sorted(folder.rglob("*.py"))]

# Imports run from the left to the right; folders of one set do not import each other.
ORDER: list[set[str]] = [
    {"cli"},
    {"pages"},
    {"api", "deploy"},
    {"runs/simulation"},
    {"runs"},
    {"federation/server", "federation/client"},
    {"federation/secagg"},
    {"federation"},
    {"federation/wire", "federation/privacy"},
    {"methods"},
    {"evidence"},
    {"dance", "llm"},
    {"client_data"},
    {"data"},
    {"data/partition"},
    {"data/imports"},
    {"data/graphs", "data/text"},
    {"nn"},
    {"config"},
    {""},  # the modules at the root
]
FLOWER = ("federation/", "runs/simulation/")  # what may import Flower, beside the two apps
PUBLIC_FLOWER = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def module_of(path: Path) -> str:
    dotted = path.relative_to(PROJECT).with_suffix("").as_posix().replace("/", ".")
    return dotted.removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCES}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """The syntax tree of a file, node by node."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def place_of(path: Path) -> tuple[int, str]:
    """The place in ORDER of the nearest folder above a file that is listed there, and its name."""
    folder = Path(name_of(path)).parent
    names = ["" if part == Path() else part.as_posix() for part in (folder, *folder.parents)]
    return next((n, name) for name in names for n, rooms in enumerate(ORDER) if name in rooms)


def test_imports_run_downwards():
    upward = [
        f"{module_of(path)} imports {name}"
        for path in SOURCES
        for name in imports_of(path)
        if name in MODULES
        and path.stem != "__main__"  # the way into the command line, above all folders
        and place_of(MODULES[name])[1] != place_of(path)[1]
        and place_of(MODULES[name])[0] <= place_of(path)[0]
    ]
    assert not upward


def test_no_modules_import_each_other_in_a_circle():
    graph = nx.DiGraph()
    for path in SOURCES:
        for name in imports_of(path):
            if name in MODULES and MODULES[name] != path:
                graph.add_edge(module_of(path), name)
    # A package's face and the files inside it: Python imports the face first in any case.
    faces = [(a, b) for a, b in graph.edges if b.startswith(a + ".") or a.startswith(b + ".")]
    graph.remove_edges_from(faces)
    assert not list(nx.simple_cycles(graph))


def test_the_product_and_its_tests_import_neither_rivals_nor_studies():
    """And rivals nothing of studies."""
    product = [*SOURCES, *sorted((PROJECT / "tests").rglob("*.py"))]
    foreign = [(path, name) for path in product for name in imports_of(path)]
    foreign += [(path, name) for path in OTHERS["rivals"] for name in imports_of(path)]
    upward = [
        f"{path.relative_to(PROJECT)} imports {name}"
        for path, name in foreign
        if name.startswith(("dance_flwr_studies", "study_support"))
        or (
            path not in OTHERS["rivals"] and name.startswith(("dance_flwr_rivals", "rival_support"))
        )
    ]
    assert not upward


def test_only_the_federation_and_its_simulation_import_flower():
    """And private names of Flower only federation/flower.py."""
    for path in SOURCES:
        names = {name for name in imports_of(path) if name.partition(".")[0] == "flwr"}
        assert not names or name_of(path).startswith(FLOWER), path
        assert name_of(path) == "federation/flower.py" or names <= PUBLIC_FLOWER, path


LEARNING = ("torch", "torch_geometric", "transformers", "sklearn", "scipy")
SERVICES = ("sqlalchemy", "alembic", "fastapi")  # what Flower's SuperLink is made of


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("client_app, dance_flwr.cli.main, dance_flwr.config.tree", LEARNING + SERVICES),
        ("server_app", SERVICES),
    ],
)
def test_what_starts_often_starts_without_heavy_libraries(modules, heavy):
    code = f"import {modules}, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_keys_of_messages_are_written_in_one_place():
    words = {
        *("num-examples", "server-round", "partition-dir", "partition-id", "clipping-norm"),
        *("server-payload", "needs-initial-upload", "secure-sum", "packed-safetensors"),
        *("total-weight", "update-range", "encoder-tokens", "proximal-mu", "unclipped"),
        *("query.hello", "query.describe", "query.exchange"),
    }
    for path in SOURCES:
        strings = {node.value for node in nodes_of(path) if isinstance(node, ast.Constant)}
        assert name_of(path).startswith("federation/wire/") or not strings & words, path


def test_every_folder_keeps_its_budget_of_lines():
    """A budget only falls: where a folder has become smaller, lower its number."""
    budget = read_budget()
    lines = lines_of(budget)
    above = {name: lines[name] for name, most in budget.items() if lines[name] > most}
    assert not above, f"more lines than in {BUDGET.name}; remove some before you add"
    loose = {name: lines[name] for name, most in budget.items() if lines[name] < most - 60}
    assert not loose, f"fewer lines than in {BUDGET.name}; lower the budget"


def test_no_test_imports_another():
    for path in TESTS:
        for name in imports_of(path):
            parts = name.split(".")
            assert not any(part.startswith(("test_", "conftest")) for part in parts), path


def test_tests_mirror_the_package():
    tests = [path for path in TESTS if path.is_relative_to(PROJECT / "tests")]
    folders = {path.relative_to(PROJECT / "tests").parent for path in tests if "test_" in path.name}
    others = [f for f in folders if f.parts[:1] != ("redteam",) and not (PACKAGE / f).is_dir()]
    assert not others


def test_contributing_lists_every_folder():
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(?:├──|└──) (\w+)/? ", text, re.MULTILINE)
    others = ("__pycache__", "__init__.py", "__main__.py", "__init__.pyi", "py.typed")
    inside = [path for path in PACKAGE.iterdir() if path.name not in others]
    assert sorted(listed) == sorted(path.stem for path in inside)


def test_the_walks_of_the_architecture_page_name_real_files_in_order():
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    limits = (8, 12, 15)
    assert len(walks) == len(limits)
    for walk, limit in zip(walks, limits, strict=True):
        steps = re.findall(r"^(\d+)\. `([\w/]+\.py)`", walk, re.MULTILINE)
        assert 0 < len(steps) <= limit
        assert all(int(b) == int(a) + 1 for (a, _), (b, _) in pairwise(steps))
        for _, file in steps:
            assert (PACKAGE / file).is_file() or (PROJECT / file).is_file(), file


def test_paper_map_covers_every_equation_and_names_real_code_and_real_tests():
    text = (PROJECT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    labels = (
        "text_encoder federated_update pseudo_label proto_score neighbor_score neighbor_gating "
        "hier_context chunk_similarity agg_text fused_embed fusion_train_loss candidate_set "
        "self_expressive_sparse adjacency difficulty text_pool topk_select hard_2hop"
    )
    assert not [label for label in labels.split() if f"eq:{label}" not in text]
    rows = re.findall(
        r"^\| (.+?) \| `([\w.]+):([\w.]+)` \| `((?:studies/)?tests/[\w/]+\.py)::(\w+)` \|$",
        text,
        re.MULTILINE,
    )
    assert len(rows) >= 20
    for what, module, attribute, file, test in rows:
        value = import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
        text = (PROJECT / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text, f"{what}: {file}::{test}"


@pytest.mark.parametrize("page", ["privacy", "security"])
def test_every_test_that_a_page_names_exists(page):
    """Files without a folder are of tests/redteam; a name without a file is of the last one."""
    text = (PROJECT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named, code = 0, ""
    for file, name in re.findall(r"`((?:tests/[\w/]+|test_\w+)\.py)?(?:::(test_\w+))?`", text):
        if file:
            folder = PROJECT if file.startswith("tests/") else PROJECT / "tests" / "redteam"
            code = (folder / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in code, name
        named += bool(file or name)
    assert named > 20
