"""The hash of the code that computes: what moves it, what does not, and when it is computed."""

import sys

import pytest
from support.killing import Killed, asks

from dance_flwr.config.plugins import METHODS
from dance_flwr.fingerprint import provenance
from dance_flwr.methods import code_of
from dance_flwr.runs import checkpoint

MODULE = """
from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor


class Layer(nn.Module):
    width: int
    rate: float = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + self.rate
"""


@pytest.fixture
def hashed(tmp_path):
    """A function that returns the provenance of a package of one module."""
    numbers = iter(range(100))

    def of(text, name="dance/layer.py"):
        path = tmp_path / str(next(numbers)) / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return provenance(tmp_path / path.relative_to(tmp_path).parts[0])

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Layer", "# a comment\n\n\nclass Layer"),
        ("return x * 2 + self.rate", "return (\n            x*2 + self.rate)  # twice"),
        ("    width: int", '    """Twice x."""\n    width: int'),
        ("        return", '        """Return 2 x."""\n        return'),
        ("rate: float = 0.5", 'rate: float = 0.5\n    """Of dropout."""'),
        ("x: Tensor) -> Tensor", "x: object)"),
        ("width: int", "width: str"),
        ("from torch import Tensor", "from numpy import ndarray"),
        ("import TYPE_CHECKING", "import TYPE_CHECKING, Any"),
    ],
)
def test_what_changes_no_number_moves_nothing(hashed, old, new):
    assert MODULE.count(old) == 1
    assert hashed(MODULE) == hashed(MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * 2", "x / 2"),
        ("x * 2", "x * 3"),
        ("x * 2", "x * 2.0"),
        ("+ self.rate", ""),
        ("rate: float = 0.5", "rate: float = 0.6"),
        ("width: int", "depth: int"),
        ("nn.Module", "nn.Identity"),
        ("from torch import nn", "from other import nn"),
        ("x * 2 + self.rate", "x * (2 + self.rate)"),
    ],
)
def test_what_may_change_a_number_moves_it(hashed, old, new):
    assert old in MODULE
    assert hashed(MODULE) != hashed(MODULE.replace(old, new))


def test_the_name_of_a_module_counts_and_what_only_shows_does_not(hashed):
    assert hashed(MODULE) != hashed(MODULE, "dance/other.py")
    empty = hashed("", "pages/charts.py")
    for name in ("pages/charts.py", "cli/run.py", "runs/status.py", "errors.py", "_app/server.py"):
        assert hashed(MODULE, name) == empty
    assert hashed(MODULE, "seeding.py") != empty != hashed(MODULE, "metrics.py")


def test_the_hash_is_kept_beside_the_bytecode_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    package = tmp_path / "package"
    (package / "__pycache__").mkdir(parents=True)
    (package / "layer.py").write_text(MODULE)
    of = provenance.__wrapped__  # what another process finds
    first = of(package)
    kept = next((package / "__pycache__").iterdir())
    assert kept.read_text().startswith(first) and of(package) == first
    kept.write_text(kept.read_text().replace(first, "f" * 16))
    assert of(package) == "f" * 16  # found, not computed
    for torn in ("", kept.read_text()[:40]):
        kept.write_text(torn)
        assert of(package) == first
    (package / "layer.py").write_text(MODULE.replace("x * 2", "x * 3"))
    assert of(package) != first


def test_a_result_names_the_code_of_all_its_rounds(run, monkeypatch, tmp_path):
    keys = {"folder": tmp_path / "run", "method": "fedavg-full"}
    with pytest.raises(Killed):
        run(on_message=asks("train", 2), **keys)
    monkeypatch.setattr(checkpoint, "code_of", lambda method: "0123456789abcdef")
    result = run(resume=True, **keys).result
    assert result["provenance"] == f"{provenance()}, 0123456789abcdef"


def test_the_module_of_an_entry_point_counts_by_its_code(tmp_path, monkeypatch):
    """It has the keys of a method, whose sides may be in other modules, here in this package."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS.builtin, "toy", "toy_spec:METHOD")
    codes = []
    for more in ("", "# said otherwise", "x = 2"):
        lines = ["from dance_flwr.methods.baselines import FEDAVG_FULL as METHOD", more]
        (tmp_path / "toy_spec.py").write_text("\n".join(lines))
        codes.append(code_of("toy"))
    assert codes[0] == codes[1] != codes[2] != code_of("fedavg-full") == provenance()
