"""A rival's code counts for runs of rivals alone."""

import shutil
from pathlib import Path

import dance_flwr_rivals
import pytest

from dance_flwr.deploy.site import SETTINGS, accept_code, check_installed, installed_code
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import provenance
from dance_flwr.methods import code_of


def test_the_code_of_a_rival_is_part_of_its_own_runs_alone(monkeypatch, tmp_path):
    before = {name: code_of(name) for name in ("dance", "ditto", "gcond")}
    assert before["dance"] == before["ditto"] == provenance()
    assert before["gcond"].startswith(f"{provenance()}+")
    copy = tmp_path / "dance_flwr_rivals"
    shutil.copytree(Path(dance_flwr_rivals.__file__).parent, copy)
    changed = copy / "condensation" / "client.py"
    text = changed.read_text(encoding="utf-8")
    assert "_STEPS = 200" in text
    changed.write_text(text.replace("_STEPS = 200", "_STEPS = 201"), encoding="utf-8")
    monkeypatch.setattr(dance_flwr_rivals, "__file__", str(copy / "__init__.py"))
    assert code_of("gcond") != before["gcond"]
    assert {name: code_of(name) for name in ("dance", "ditto")} == {
        name: before[name] for name in ("dance", "ditto")
    }


def test_a_site_accepts_rivals_only_where_its_terms_allow_one(monkeypatch, tmp_path):
    (tmp_path / SETTINGS).write_text('methods = "dance, ditto"\n')
    assert list(installed_code(tmp_path)) == [provenance()]
    accept_code(tmp_path, provenance())
    check_installed(tmp_path)
    (tmp_path / SETTINGS).write_text('methods = "dance, gcond"\n')
    with pytest.raises(UserError, match="found dance_flwr_rivals as installed"):
        check_installed(tmp_path)
    accept_code(tmp_path, list(installed_code(tmp_path))[1])
    check_installed(tmp_path)
    (tmp_path / SETTINGS).write_text("")
    assert len(installed_code(tmp_path)) > 1, "without terms every installed method may run"
