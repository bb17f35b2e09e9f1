"""One word per thing: what the glossary does not use is in no text that people read."""

import ast
import re

import pytest
from support.documents import BLOCK
from support.project import PROJECT

PACKAGE = PROJECT / "dance_flwr"
READ = [
    *sorted((PACKAGE / "pages").glob("*.py")),
    *sorted((PACKAGE / "pages" / "templates").glob("*.j2")),
    *(PACKAGE / name for name in ("cli/evidence.py", "evidence/render.py")),
    PROJECT / "README.md",
]


def glossary():
    """The words that are not used, in the singular."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (PROJECT / "docs" / "glossary.md").read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    return {word.strip() for row in rows[2:] for word in row[2].split(",")} - {""}


def sentences(path):
    """What of a file people read: prose; text of a template; literals of code with a space."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return [re.sub(r"`[^`]*`", " ", BLOCK.sub(" ", text))]
    literals = [text.partition("{% block footer %}")[0]]  # the page's own glossary explains words
    if path.suffix == ".py":
        tree = ast.parse(text)
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        documented = (node for node in ast.walk(tree) if isinstance(node, kinds) and node.body)
        # A docstring of a command is its help.
        own = () if path.parent.name == "cli" else documented
        docstrings = {id(node.body[0].value) for node in own if isinstance(node.body[0], ast.Expr)}
        literals = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if " " in node.value and id(node) not in docstrings
        ]
    return [re.sub(r"<[^>]*>|{{.*?}}|{%.*?%}", " ", each, flags=re.DOTALL) for each in literals]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_no_unused_word_is_read(path):
    unused = glossary()
    assert {"chunk", "span", "hop", "pack", "gate", "fused", "margin", "prior"} <= unused
    words = re.findall(r"[a-z]+(?:-[a-z]+)*", " ".join(sentences(path)).lower())
    assert sorted({word for word in words if {word, word.removesuffix("s")} & unused}) == []
