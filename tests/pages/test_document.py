"""The shell of every page: what may run in it, how data lie in it, and how it is written."""

import base64
import os
import re
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from dance_flwr.errors import UserError
from dance_flwr.pages import document
from dance_flwr.pages.document import Page, packed, unpacked

HOSTILE = "</script><script>alert(1)</script><!-- --> &amp; \" ' \x00 \u202e \ud800 \U0001f600"


@pytest.fixture
def page():
    return Page("base.html.j2", f"title {HOSTILE}", data={"one": {"text": HOSTILE}})


def test_data_come_back_as_they_were(page):
    html = page.html().decode()
    block = re.search(r'<script type="application/gzip" id="data-one">([^<]*)</script>', html)
    assert unpacked(block[1]) == {"text": HOSTILE}


def test_a_hostile_title_adds_no_element(page):
    html = page.html().decode("utf-8")
    assert "alert(1)</script>" not in html
    assert html.count("<script") == html.count("</script>") == 2  # the data, the script
    assert html.count("<title>") == 1


def test_the_policy_lets_this_script_and_this_style_run_and_nothing_else(page):
    html = page.html().decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]
    rules = dict(rule.split(" ", 1) for rule in policy.replace("&#39;", "'").split("; "))
    assert rules["default-src"] == rules["connect-src"] == rules["base-uri"] == "'none'"
    for element, rule in (("script", "script-src"), ("style", "style-src")):
        text = re.search(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)[1]
        digest = base64.b64encode(sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "unsafe" not in policy and "http:" not in policy and "*" not in policy
    assert html.index("Content-Security-Policy") < html.index("<style>") < html.index("<script")


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        packed([float("nan")])


def test_no_static_file_can_end_its_element():
    for path in Path(document.__file__).with_name("static").iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"</(?:script|style)|<!--|\r", text, re.IGNORECASE), path


def test_a_page_is_its_owners_from_its_first_byte(page, tmp_path, monkeypatch):
    modes, opened = [], os.open

    def noticing(path, flags, mode=0o777, **rest):
        descriptor = opened(path, flags, mode, **rest)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "open", noticing)
        page.write(tmp_path / "page.html")
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_an_earlier_page_is_replaced_and_nothing_else(page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("my notes")
    with pytest.raises(UserError, match="expected a new file or an earlier page"):
        page.write(path)
    assert path.read_text() == "my notes"
    path.unlink()
    page.write(path)
    Page("base.html.j2", "another").write(path)
    assert b"another" in path.read_bytes()
