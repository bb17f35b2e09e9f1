"""The command line as a whole: its commands, what `--help` imports, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time

import click
import psutil
import pytest
import typer
from support.help import modules_of_help

from dance_flwr.cli.main import STUDIES, app
from dance_flwr.config.plugins import METHODS, RIVALS
from dance_flwr.errors import UserError

COMMANDS = {
    *("demo", "run", "status", "list", "report", "export", "predict"),
    *("evidence show", "evidence verify", "evidence page"),
    *("data fetch", "data import", "data show", "partition", "supernode"),
    *("deploy init", "deploy serve", "deploy admit", "deploy run"),
    *("site join", "site start", "site accept", "site results"),
    *("site prepare", "site privacy"),
}


def leaves(command, words=()):
    """Every command below a group, by its words."""
    if not isinstance(command, click.Group):
        return {" ".join(words): command}
    found = {}
    for name, child in command.commands.items():
        found |= leaves(child, (*words, name))
    return found


PROGRAM = {
    words: command
    for words, command in leaves(typer.main.get_command(app)).items()
    if words not in STUDIES
}


def test_commands_are_the_documented_ones():
    assert PROGRAM.keys() == COMMANDS


@pytest.mark.parametrize("words", PROGRAM)
def test_every_command_and_option_is_explained(words):
    command = PROGRAM[words]
    assert command.help and command.help.splitlines()[0].endswith(".")
    # Arguments of some versions of click drop the help that typer gives them.
    options = [item for item in command.params if not isinstance(item, click.Argument)]
    assert [item.name for item in options if not item.help] == []


# What typer needs to print help, and what of this package declares commands and keys.
OF_HELP = {"typer", "click", "rich", "markdown_it", "mdurl", "pygments", "attr", "shellingham"}
OF_HELP |= {"typing_extensions", "annotated_doc", "colorama", "dance_flwr"}
OF_HELP |= {"dance_flwr_studies"}  # where it is installed
OURS = {"cli", "config", "errors", "escaping", "fingerprint"}
# The options of `data import`, in two packages without code.
OPTIONS = {"dance_flwr.data", "dance_flwr.data.imports", "dance_flwr.data.imports.options"}
OPTIONS |= {"dance_flwr.runs", "dance_flwr.runs.processes"}  # and signals


@pytest.mark.parametrize("words", ["--help", "run --help", "data --help"])
def test_help_imports_only_what_prints_it(words):
    modules = modules_of_help(words)
    packages = {name.partition(".")[0] for name in modules}
    assert packages - set(sys.stdlib_module_names) <= OF_HELP
    ours = {name for name in modules if name.startswith("dance_flwr.")} - OPTIONS
    parts = [name.split(".") for name in ours]
    assert {part[1] for part in parts} <= OURS
    assert not {"asyncio", "multiprocessing", "sqlite3", "http.client"} & set(modules)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("expected x, found y"), "error: expected x, found y"),
        (UserError("expected x,\nfound y"), "error: expected x, found y"),
        (PermissionError(13, "Permission denied", "/srv/x"), "error: /srv/x: expected "),
    ],
    ids=["user error", "line break", "disk"],
)
def test_a_mistake_is_one_line_and_code_2(cli, monkeypatch, error, line):
    def fail():
        raise error

    monkeypatch.setattr("dance_flwr.config.text.common_tables", fail)
    done = cli("list", "keys")
    assert done.code == 2 and len(done.err) == 1 and done.err[0].startswith(line)


def test_a_bug_is_not_hidden(cli, monkeypatch):
    def fail():
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("dance_flwr.config.text.common_tables", fail)
    with pytest.raises(OSError, match="Input/output"):
        cli("list", "keys")


def test_evidence_is_shown_on_a_terminal_that_knows_ascii_alone(dance, cli, monkeypatch):
    """As with `LC_ALL=C PYTHONUTF8=0`: the marks of a span are no ASCII."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="surrogateescape")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert cli("evidence", "show", dance.folder, "--client", 0).code == 0
        stream.flush()
    shown = stream.buffer.getvalue().decode("ascii")
    assert "\\u27e6" in shown and "\\u27e7" in shown


# The command line of a process in which a function stops it.
STOPPED = """
import importlib, os, runpy, signal
stop = lambda *_, **__: os.kill(os.getpid(), signal.{})
setattr(importlib.import_module({!r}), {!r}, stop)
runpy.run_module("dance_flwr", run_name="__main__", alter_sys=True)
"""
LOADING = ("SIGINT", "importlib.metadata", "entry_points")
WRITING = ("SIGTERM", "dance_flwr.data.imports.importer", "write_text")


@pytest.mark.parametrize("place", [LOADING, WRITING], ids="-".join)
def test_whatever_stops_a_command_it_ends_in_order(tiny, tmp_path, monkeypatch, place):
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path))
    command = [sys.executable, "-c", STOPPED.format(*place), "data", "import", tiny]
    done = subprocess.run([*command, "--name", "own"], capture_output=True, text=True)
    assert done.returncode == 130 and "Traceback" not in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_ctrl_c_while_a_child_loads_is_no_traceback(tiny):
    """A terminal sends it to all processes of the command."""
    command = [sys.executable, "-m", "dance_flwr", "data", "import", tiny, "--name", "own"]
    started = psutil.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    while not started.children() and started.poll() is None:
        time.sleep(0.005)
    time.sleep(0.1)  # it loads pyarrow
    os.killpg(started.pid, signal.SIGINT)
    assert "Traceback" not in started.communicate()[1] and started.returncode == 130


# Where the packages of rivals and studies are not installed

# The command line of a process that finds no entry point of another package.
CODE = """
import importlib.metadata as metadata, sys
metadata.entry_points = lambda **_: ()
from dance_flwr.cli.main import main
sys.argv[0] = "dance-flwr"
main()
"""


@pytest.mark.parametrize("command", STUDIES)
def test_a_command_of_studies_names_its_package(command):
    done = subprocess.run(
        [sys.executable, "-c", CODE, command, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"error: dance-flwr {command}: " in done.stderr
    assert "`pip install dance-flwr-studies`" in done.stderr


def test_the_list_of_methods_has_no_rival(alone, cli):
    named = {line.split()[0] for line in cli("list", "methods").out.splitlines()}
    assert named == {*METHODS.builtin} and not named & {*RIVALS}
