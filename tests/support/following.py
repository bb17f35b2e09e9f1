"""Commands that an output recommends, followed one after the other."""

import re
import shlex
from hashlib import sha256

import pytest

from dance_flwr.config.paths import state_root
from support.graphs import SMALL

# In backquotes up to the closing one; elsewhere to the comment or the end of the line.
RECOMMENDED = re.compile(r"`dance-flwr ([^`]+)`|dance-flwr (.+?)(?: +#.*)?$", re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<![\w/.-])[A-Z][A-Z_]+(?![\w/])|<\w+>")


def recommended(text):
    """The words of each command in a text, in order, each once."""
    found = [(quoted or plain).strip() for quoted, plain in RECOMMENDED.findall(text)]
    return list(dict.fromkeys(found))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty home and working folder, with a space in its name."""
    folder = tmp_path / "a home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("DANCE_FLWR_HOME", str(folder / "data"))
    return folder


@pytest.fixture
def options(tiny):
    pairs = {**SMALL, "rounds": 2}
    return ["--data", tiny, *(f"--set={key}={value}" for key, value in pairs.items())]


def files(folder):
    """What every file below a folder holds; of a page without the time at which it was written."""
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        path: sha256(re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", b"", data)).hexdigest()
        for path, data in content.items()
        # Which run was the last one, and drafts and locks, are no output.
        if state_root() not in path.parents and path.suffix != ".lock"
    }


@pytest.fixture
def follow(cli, place):
    """A function that runs a command, and what it recommends, and what that does; returns all."""

    def run(*words):
        done, followed = cli(*words), []
        assert done.code == 0, done.err
        waiting = recommended("\n".join([done.out, *done.err]))
        while waiting:
            command = waiting.pop(0)
            assert not PLACEHOLDER.search(command), command
            before = files(place)
            done = cli(*shlex.split(command))
            assert done.code == 0, (command, done.out, done.err)
            followed.append(command)
            after = files(place)
            assert before.keys() <= after.keys(), command
            assert [path for path in before if before[path] != after[path]] == [], command
            new = recommended("\n".join([done.out, *done.err]))
            waiting += [each for each in new if each not in (*followed, *waiting)]
        return followed

    return run
