"""Copies of the sources, and changes to them."""

import ast
import shutil

from support.project import PROJECT


def copied(folder):
    """The package and the two apps in a new folder."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "dance_flwr", folder / "dance_flwr", ignore=without)
    for name in ("client_app.py", "server_app.py"):
        shutil.copy(PROJECT / name, folder)
    return folder


def changed(folder):
    """The folder, with every docstring changed."""
    for path in (folder / "dance_flwr").rglob("*.py"):
        path.write_text(with_other_docstrings(path.read_text("utf-8")), encoding="utf-8")
    return folder


def with_other_docstrings(text):
    """A module with a comment, an empty line and one more word in every docstring."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node):
            place = node.body[0].lineno - 1
            lines[place] = lines[place].replace('"""', '"""Changed. ', 1)
    return "# changed\n\n" + "".join(lines)
