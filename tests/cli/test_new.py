"""`dance-flwr new`: what it shows of files, what it asks for, and the study that it writes."""

import tomllib

import pytest
from support.graphs import SMALL

from dance_flwr.config.text import read_config

NODES = "id,abstract,topic\na,stars and dust,sky\nb,a red dwarf,sky\nc,moss on an oak,wood\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "home"))
    nodes, edges = tmp_path / "papers.csv", tmp_path / "links.csv"
    nodes.write_text(NODES)
    edges.write_text("source,target\na,b\nb,c\n")
    return nodes, edges


def test_it_shows_classes_and_texts_and_writes_a_study(cli, files, tmp_path):
    done = cli("new", "mine", "--from", *files, "--text", "abstract", "--label", "topic")
    assert done.code == 0, done.err
    for shown in ("2  sky", "1  wood", "a: stars and dust", "c: moss on an oak", "abstract"):
        assert shown in done.out
    assert done.out.endswith("dance-flwr run --config mine/study.toml\n")
    config = read_config([tmp_path / "mine" / "study.toml"], [], {})
    assert (config.data, config.clients, config.partition) == ("mine", 5, "louvain")
    done = cli("new", "mine", "--from", *files, "--text", "abstract", "--label", "topic")
    assert done.code == 2 and "expected a new study, found one" in done.err[0]


def test_a_column_that_cannot_be_told_is_named_by_an_option(cli, files, tmp_path):
    done = cli("new", "mine", "--from", *files, "--label", "topic")
    assert done.code == 2 and done.err[0].endswith("name it with --text")
    done = cli("new", "mine", "--from", *files, "--text", "abstract", "--label", "none")
    assert done.code == 2 and done.err[0].endswith("none of a usual name; name it with --label")
    assert not (tmp_path / "mine").exists()


def test_a_terminal_is_asked(cli, files, monkeypatch):
    asked = []
    nodes, _ = files
    nodes.write_text(NODES.replace("topic", "area"))
    answers = {"--text": "abstract", "--label": "area"}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda option: asked.append(option) or answers[option])
    done = cli("new", "mine", "--from", *files)
    assert done.code == 0 and asked == ["--text", "--label"]


def test_sites_are_clients_and_the_study_runs(cli, files, tmp_path, tiny):
    nodes, edges = files
    rows = [f"n{i},{'stars' if i % 2 else 'moss'} {i},{i % 2},{'nes'[i % 3]}" for i in range(60)]
    nodes.write_text("\n".join(["id,text,label,site", *rows]) + "\n")
    edges.write_text("source,target\n" + "".join(f"n{i},n{i + 1}\n" for i in range(59)))
    done = cli("new", "mine", "--from", *files)
    assert done.code == 0, done.err
    keys = tomllib.loads((tmp_path / "mine" / "study.toml").read_text())
    assert (keys["partition"], keys["clients"]) == ("by-column", 3)
    small = {**SMALL, "rounds": 1}
    pairs = [f"--set={key}={value}" for key, value in small.items() if key != "clients"]
    done = cli("run", "--config", "mine/study.toml", *pairs)
    assert done.code == 0, done.err
    assert done.out.startswith("3 clients train one model with dance on the 60 texts of mine")
