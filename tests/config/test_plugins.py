"""The registries: names, lazy imports, entry points of other packages, and one line per mistake."""

import re
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
from support.project import PROJECT

from dance_flwr.config import plugins
from dance_flwr.config.options import Section, option
from dance_flwr.config.plugins import METHODS, Registry
from dance_flwr.config.tree import section_types
from dance_flwr.errors import UserError

GROUP = "dance_flwr.toys"
REGISTRIES = [value for value in vars(plugins).values() if isinstance(value, Registry)]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs modules and entry points in a folder on the path; returns it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def make(entries, group=GROUP, **modules):
        info = tmp_path / "toys-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        return tmp_path

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("toy_"):
            del sys.modules[name]


def refused(action, *arguments):
    """The message with which an action is refused: one line."""
    with pytest.raises(UserError) as error:
        action(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_plug_in_of_this_package_can_be_imported(registry):
    assert set(registry.all()) == set(registry) == set(registry.names())
    assert len(registry) == len(registry.names()) >= len(registry.builtin) > 0


def test_names_are_those_of_this_package_then_the_others_sorted(install):
    install({"b-toy": "toy_a:B", "a-toy": "toy_a:A"})
    registry = Registry(GROUP, "toy", {"z-own": "m:X", "y-own": "m:Y"})
    assert registry.names() == tuple(registry) == ("z-own", "y-own", "a-toy", "b-toy")
    assert "a-toy" in registry and "z-own" in registry and "c-toy" not in registry


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "ModuleNotFoundError: No module named 'toy_broken'"),
        ("import toy_dependency\n", "ModuleNotFoundError: No module named 'toy_dependency'"),
        ("from json import absent\n", "ImportError: cannot import name 'absent'"),
        ("def half(:\n", "SyntaxError"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines"),
        ("{}.absent\n", "AttributeError: 'dict' object has no attribute 'absent'"),
    ],
    ids=["module", "dependency", "name", "syntax", "lines", "attribute"],
)
def test_a_plug_in_that_cannot_be_imported_is_named(install, text, reason):
    install({"a-toy": "toy_broken:TOY"}, **({"toy_broken": text} if text else {}))
    message = refused(Registry(GROUP, "toy").get, "a-toy")
    assert message.startswith("toy 'a-toy': expected to import module 'toy_broken', found ")
    assert reason in message


@dataclass(frozen=True)
class Toy(Section):
    name: ClassVar[str] = "dance"
    steps: int = option(1, "steps of the toy")


@pytest.mark.parametrize("name", ["dance", "privacy"])
def test_a_section_may_not_take_a_name_in_use(monkeypatch, name):
    @dataclass
    class Spec:
        sections: tuple = (type("Named", (Toy,), {"name": name}),)

    monkeypatch.setitem(METHODS.builtin, "toy", Spec())
    message = refused(section_types)
    assert message.startswith(f"section {name!r} of ") and "rename" in message


def installed_call(folder, *arguments):
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from dance_flwr.cli.main import main; "
        f"sys.argv = ['dance-flwr', *{arguments!r}]; main()"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"dance": "toy_a:A"}, r"entry point dance_flwr\.methods: .*'dance' = 'toy_a:A'"),
        ({"toy": "toy_absent:A"}, r"method 'toy': expected to import module 'toy_absent'"),
        ({"toy": "json:dumps"}, r"method 'toy': expected a MethodSpec, found function without"),
    ],
)
def test_the_command_line_reports_a_broken_plug_in_in_one_line(install, entries, words):
    folder = install(entries, group="dance_flwr.methods")
    done = installed_call(folder, "partition")
    assert done.returncode == 2 and re.match(f"error: {words}", done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert installed_call(folder, "--help").returncode == 0
