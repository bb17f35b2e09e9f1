"""Texts, class names and error lines that command a terminal, or look like evidence."""

import io
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dance_flwr import events
from dance_flwr.cli.listing import render
from dance_flwr.cli.main import EscapedOutput
from dance_flwr.escaping import escaped, one_line
from dance_flwr.evidence.render import _marked, _name
from dance_flwr.evidence.summaries.summary import Span
from dance_flwr.runs.run import Status

LIES = {
    "clipboard": "\x1b]52;c;ZWNobyBpbmZlY3RlZA==\x07",
    "title": "\x1b]0;root@server\x07",
    "clear": "\x1b[2J\x1b[H",
    "C1": "\x9b2J",
    "over the line before": "\rverified\x08",
    "right to left": "\u202egnp.exe",
    "new line of JSON": "\u2028",
    "half a character": "\ud83d",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_command_of_a_stranger_is_shown_and_not_obeyed(lie):
    stream = io.StringIO()
    EscapedOutput(stream).write(f"before {lie} after\n")
    shown = stream.getvalue()
    assert shown.isprintable() or shown[:-1].isprintable()
    assert shown.startswith("before \\") or "\\" in shown
    shown.encode()


@given(st.text())
def test_escaped_text_has_no_control_and_is_escaped_once(text):
    plain = escaped(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain)
    assert escaped(plain) == plain
    assert "\n" not in one_line(text)


@given(st.text(alphabet="ab \n⟦⟧|:0.9\x1b"), st.data())
def test_a_text_cannot_forge_a_mark_or_a_line_of_a_pack(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    shown = _marked(text, [Span(1, 0, start, end, 0.25, text[start:end])], {})
    assert shown.count("⟦") == shown.count("⟧") == 1
    assert all(line.startswith("| ") or line == "|" for line in shown.split("\n"))
    inside = re.search(r"⟦\[1\] 0\.250: (.*?)⟧", re.sub(r"(?m)^\| ?", "", shown), re.DOTALL)
    assert inside[1] == escaped(text[start:end], marks=True)


def test_a_plain_text_is_shown_as_it_is():
    text = "Größe, naïve café, 数据, δ_j ≤ 1\twith tab\nand line"
    assert escaped(text) == text


@pytest.mark.parametrize("lie", [LIES["clipboard"], LIES["clear"]])
@pytest.mark.parametrize("traceback", [False, True], ids=["its message", "its traceback"])
def test_the_log_of_a_server_obeys_no_client(lie, traceback, caplog):
    events.install()
    caplog.set_level(logging.ERROR, "flwr")
    flower, stream = logging.getLogger("flwr"), io.StringIO()
    handler = logging.StreamHandler(stream)
    flower.addHandler(handler)
    try:
        flower.error("client 1: %s", lie, exc_info=ValueError(lie) if traceback else None)
    finally:
        flower.removeHandler(handler)
    assert "\x1b" not in stream.getvalue() and "\\x1b" in stream.getvalue()
    assert ("ValueError" in stream.getvalue()) == traceback


def test_a_bug_prints_no_command_of_the_text_that_it_met():
    """A traceback ends with the text of the exception, and the interpreter prints it as it is."""
    code = """
import dance_flwr.cli.main as main
def app(**options):
    raise ValueError("\\x1b]0;title\\x07")
main.app = app
main.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "ValueError: \\x1b]0;title" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_an_id_cannot_forge_a_mark_or_a_status_a_line():
    assert _name("a⟦0.9: b⟧") == "'a\\u27e60.9: b\\u27e7'"
    failed = Status("out", "failed", reason="no\nresume      rm -rf /")
    assert "\nresume" not in render(failed)


def test_the_program_prints_no_command_of_a_data_set(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,text,label\na,x,one\nb,y,\x1b]0;title\x07two\nc,z,one\n"
    )
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    command = [str(Path(sys.executable).with_name("dance-flwr")), "data", "show", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "two" in done.stdout + done.stderr, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
