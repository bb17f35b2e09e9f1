"""The hash of the code that computes: what moves it, what does not, and when it is computed."""

import sys

import pytest
from support.killing import Killed, asks

from dance_flwr.fingerprint import code_hash, provenance
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


def test_the_hash_of_files_is_that_of_their_code(tmp_path):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x = 1  # said\n")
    two.write_text('"""Said otherwise."""\n\nx = 1\n')
    assert code_hash(one) == code_hash(two) != code_hash(one, two)
    two.write_text("x = 2\n")
    assert code_hash(one) != code_hash(two)
