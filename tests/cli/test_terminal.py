"""Commands on a real terminal: bars move, no line is wider, and no text of a stranger commands."""

import re
import subprocess

import pytest
from support.graphs import SMALL
from support.terminals import COLUMNS, PROGRAM, on_terminal, states

BARS = "start|partition|texts|clients|rounds|runs|reading|nodes|edges|checking"
LIE = "\x1b]0;title\x07\x1b[2J\rtwo"


def check(text, columns=COLUMNS):
    """Neither a bar nor a table is wider than the terminal, and nothing of them is escaped."""
    drawn = re.findall(rf"\r((?:{BARS}) [^\r\n]*)", text) + re.findall(r"[│┃┡─].*?(?=\r\n)", text)
    assert drawn and max(map(len, drawn)) <= columns, max(drawn, key=len)
    assert "\\x" not in text and "\x1b" not in text, text


@pytest.fixture(scope="module")
def words(tiny):
    """The options of a run of enough rounds to be seen."""
    pairs = {**SMALL, "rounds": 60, "clients": 3, "method": "fedavg-full"}
    return ["--data", tiny, *(f"--set={key}={value}" for key, value in pairs.items())]


def test_a_run_moves_a_bar_and_so_does_its_rest(words, tmp_path):
    out = tmp_path / "out"
    seen = r"rounds .* \d\d:\d\d left"
    code, text = on_terminal("run", *words, "--out", out, until=seen)
    assert code != 0 and "Traceback" not in text, text
    check(text)
    assert "start  " in text.partition("clients train")[0], "before anything is known, too"
    assert len(states(text, "rounds")) > 1 and "val accuracy" in text
    code, text = on_terminal("run", "--resume", out)
    assert code == 0, text
    numbers = states(text, "rounds")
    assert len(numbers) > 1 and int(numbers[0]) > 0 and "\rtraining " in text
    check(text)


def test_a_class_name_commands_no_terminal(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        f'id,text,label\na,"x{LIE}",one\nb,y,"{LIE}"\nc,z,one\n', newline=""
    )
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    code, text = on_terminal("data", "show", tmp_path, columns=40)
    assert code == 0 and "\x1b" not in text and "\x07" not in text
    # Rich drops some controls, and what it leaves is escaped.
    assert "\\x1b]0;title" in re.sub(r"[\s│]", "", text)
    assert "\rtwo" not in text, "over what was printed"


def test_a_log_of_a_short_run_has_no_bar(words, tmp_path):
    command = [PROGRAM, "run", *map(str, words), "--out", tmp_path / "out"]
    done = subprocess.run([*command, "--set=rounds=2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr + done.stdout and "%|" not in done.stderr
