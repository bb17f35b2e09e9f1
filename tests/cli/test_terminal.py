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


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A graph whose texts take seconds to encode and to import, as tables for `data import`."""
    folder = tmp_path_factory.mktemp("graphs") / "large"
    folder.mkdir()
    nodes, edges = 8_000, 1_000_000
    with (folder / "nodes.csv").open("w") as file:
        file.write("id,text,label\n")
        file.writelines(f"n{i},{'red blue green ' * 20}{i},{'xyz'[i % 3]}\n" for i in range(nodes))
    with (folder / "edges.csv").open("w") as file:
        file.write("source,target\n")
        file.writelines(f"n{i % nodes},n{(i * 7919 + i // nodes) % nodes}\n" for i in range(edges))
    return folder


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


def test_the_demo_moves_a_bar_while_it_reads_the_texts(tmp_path):
    seen = (
        r"\rtexts [^\r]*?([\d,]+) of [\d,]+ tokens.*\rtexts [^\r]*?(?!\1 )[\d,]+ of [\d,]+ tokens"
    )
    code, text = on_terminal("demo", home=tmp_path, until=seen)
    assert code != 0 and len(states(text, "texts", " tokens")) > 1
    check(text)


def test_an_import_says_what_it_does(texts, tmp_path):
    code, text = on_terminal("data", "import", texts, "--name", "mine", home=tmp_path / "root")
    assert code == 0, text
    stages = re.findall(rf"\r({BARS}) +([^\r]*)", text)
    assert "reading" in {stage for stage, _ in stages}


def test_a_partition_moves_a_bar(texts, tmp_path):
    pairs = {**SMALL, "data-root": tmp_path / "root"}
    options = [f"--set={key}={value}" for key, value in pairs.items()]
    from dance_flwr.data.imports.importer import import_graph

    import_graph([texts], "mine", tmp_path / "root")
    code, text = on_terminal("partition", "--data", "mine", *options)
    assert code == 0, text
    assert len(states(text, "texts", " tokens")) > 1


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
