"""The command line as a whole: its commands, what `--help` imports, and how it ends."""

import io
import runpy
import sys

import click
import pytest
import typer
from support.help import modules_of_help

from dance_flwr.cli.main import GROUPS, PANELS, STUDIES, app
from dance_flwr.config import text
from dance_flwr.config.plugins import METHODS, PARTITIONERS, STRATEGIES
from dance_flwr.errors import UserError

COMMANDS = {
    "config": {"--all", "--method", "--schema"},
    "data fetch": {"--data-root", "--split-index"},
    "data import": {
        *("--name", "--text", "--label", "--id", "--source", "--target", "--split-index"),
        *("--edge-weight", "--edge-text", "--dangling", "--unlabelled", "--encoding"),
        *("--delimiter", "--data-root", "--dry-run", "--quoting", "--no-header", "--missing"),
        "--edges-from",
    },
    "data list": {"--data-root"},
    "data show": {"--data-root", "--json"},
    "deploy admit": {"--federation", "--replace"},
    "demo": set(),
    "deploy certificates": {"--host", "--out", "--days", "--authority"},
    "deploy check": {
        *("--superlink", "--root-certificates", "--key", "--data", "--agreed", "--node-config"),
        "--json",
    },
    "deploy init": {"--host", "--classes", "--sites", "--set", "--port", "--superlink-port"},
    "deploy peer-keys": {"--out"},
    "deploy run": {"--federation", "--config", "--set", "--name", "--resume"},
    "deploy serve": {"--federation"},
    "encode": {"--config", "--set"},
    "evidence page": {
        *("--client", "--out", "--nodes", "--max-nodes", "--client-folder", "--data", "--encode"),
    },
    "evidence show": {"--client", "--node", "--client-folder", "--data", "--json"},
    "evidence verify": {"--client-folder", "--encode", "--data", "--evidence"},
    "export": {"--out", "--client-folder"},
    "personal": {"--out", "--client-folder"},
    "predict": {"--data", "--out", "--evidence"},
    "worth": {"--client-folder"},
    "stats": {"--out", "--json"},
    "list": {"--json"},
    "new": {
        *("--from", "--text", "--label", "--id", "--source", "--target", "--edge-text"),
        "--clients",
    },
    "partition from-manifest": {"--data", "--out", "--encode", "--no-encode"},
    "partition make": {
        *("--out", "--data", "--clients", "--method", "--seed", "--resolution", "--alpha"),
        *("--train-ratio", "--val-ratio", "--test-ratio", "--encode", "--no-encode"),
        *("--manifest-only", "--config", "--set"),
    },
    "partition show": {"--png"},
    "prepare": {"--config", "--set", "--data", "--clients", "--seed"},
    "privacy report": set(),
    "report": {"--out", "--html", "--live", "--track", "--json"},
    "review": {"--merge"},
    "run": {
        *("--config", "--set", "--data", "--method", "--rounds", "--clients", "--seed", "--out"),
        *("--engine", "--resume", "--overwrite", "--dry-run", "--track", "--compare"),
    },
    "site accept": {"--site"},
    "site join": {"--out", "--encoder"},
    "site prepare": {"--agreed", "--client", "--clients", "--out", "--encoder", "--seed"},
    "site results": {"--site", "--run", "--out"},
    "site start": {"--site", "--peer-keys"},
    "status": {"--json"},
    "supernode": {"--accept-code"},
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


def test_commands_and_options_are_the_documented_ones():
    flags = {
        words: {
            flag
            for parameter in command.params
            if not isinstance(parameter, click.Argument)
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        for words, command in PROGRAM.items()
    }
    assert flags == COMMANDS


@pytest.mark.parametrize("words", PROGRAM)
def test_every_command_and_option_is_explained(words):
    command = PROGRAM[words]
    assert command.help and command.help.splitlines()[0].endswith(".")
    unexplained = [parameter.name for parameter in command.params if not help_of(parameter)]
    assert not [name for name in unexplained if name != "help"]


def help_of(parameter):
    # Arguments of some versions of click drop the help that typer gives them.
    return isinstance(parameter, click.Argument) or getattr(parameter, "help", None)


def test_help_is_grouped_and_every_line_is_of_a_command():
    program = typer.main.get_command(app)
    lines = {name: line for lines in PANELS.values() for name, line in lines.items()}
    assert lines.keys() == program.commands.keys() | {*STUDIES}
    context = click.Context(program)
    panels = {name: program.get_command(context, name) for name in program.list_commands(context)}
    assert [*panels] == [name for name in lines if name in program.commands]
    assert {c.rich_help_panel for c in panels.values()} == {*PANELS}
    assert all(len(line) < 66 for line in lines.values()), "a line of 80 columns each"


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--rouns", "did you mean --rounds?"),
        ("--local-epochs", "a key of the configuration; use --set local-epochs=VALUE"),
        ("--dance.mix=0.4", "a key of the configuration; use --set dance.mix=VALUE"),
        ("--local-epoch", "did you mean --set local-epochs=VALUE?"),
    ],
)
def test_an_unknown_option_is_answered_with_what_is_meant(cli, option, meant):
    done = cli("run", option, "3")
    assert done.code == 2 and len(done.err) == 1 and done.err[0].endswith(meant)


@pytest.mark.parametrize("kind", ["methods", "partitioners", "strategies"])
def test_list_has_a_line_for_each(cli, kind):
    registries = {"methods": METHODS, "partitioners": PARTITIONERS, "strategies": STRATEGIES}
    rows = [line.split(maxsplit=1) for line in cli("list", kind).out.splitlines()]
    assert [name for name, _ in rows] == list(registries[kind].names())
    assert len({text for _, text in rows}) > len(rows) / 2
    assert "expected one of methods" in cli("list", "models").err[-1]


def test_every_group_is_registered_in_the_same_way():
    assert all(isinstance(group.app, typer.Typer) for group in GROUPS)
    names = [group.__name__.rpartition(".")[2] for group in GROUPS]
    assert len(set(names)) == len(names)


# What typer needs to print help, and what of this package declares commands and keys.
OF_HELP = {"typer", "click", "rich", "markdown_it", "mdurl", "pygments", "attr", "shellingham"}
OF_HELP |= {"typing_extensions", "annotated_doc", "colorama", "dance_flwr"}
OF_HELP |= {"dance_flwr_studies"}  # where it is installed
OURS = {"cli", "config", "errors", "escaping", "fingerprint"}


@pytest.mark.parametrize("words", ["--help", "run --help", "data --help"])
def test_help_imports_only_what_prints_it(words):
    modules = modules_of_help(words)
    packages = {name.partition(".")[0] for name in modules}
    assert packages - set(sys.stdlib_module_names) <= OF_HELP
    parts = [name.split(".") for name in modules if name.startswith("dance_flwr.")]
    assert {part[1] for part in parts} <= OURS
    assert not {"asyncio", "multiprocessing", "sqlite3", "http.client"} & set(modules)


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], text.common_tables()),
        (["--all"], text.all_tables()),
        (["--method", "ditto"], text.method_tables(["ditto"])),
        (["--schema"], text.json_schema()),
    ],
    ids=["common", "all", "method", "schema"],
)
def test_config_prints_the_keys(cli, options, printed):
    assert cli("config", *options).out == printed + "\n"


def test_config_takes_one_option_and_a_method_that_exists(cli):
    done = cli("config", "--all", "--schema")
    assert done.code == 2 and "expected one of --method, --all and --schema" in done.err[0]
    done = cli("config", "--method", "magic")
    assert done.code == 2 and "method: expected one of dance, fedavg-full" in done.err[0]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (UserError("expected x, found y"), ["error: expected x, found y"]),
        (UserError("expected x,\nfound y"), ["error: expected x, found y"]),
        (PermissionError(13, "Permission denied", "/srv/x"), ["error: /srv/x: expected "]),
    ],
    ids=["user error", "line break", "disk"],
)
def test_a_mistake_is_one_line_and_code_2(cli, monkeypatch, error, lines):
    def fail():
        raise error

    monkeypatch.setattr("dance_flwr.config.text.common_tables", fail)
    done = cli("config")
    assert done.code == 2 and len(done.err) == 1 and done.err[0].startswith(lines[0])


def test_a_bug_is_not_hidden(cli, monkeypatch):
    def fail():
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("dance_flwr.config.text.common_tables", fail)
    with pytest.raises(OSError, match="Input/output"):
        cli("config")


@pytest.mark.parametrize("option", [["--seed", "3"], ["--set", "rounds=2"], ["--out", "x"]])
def test_resume_takes_no_other_option(cli, tmp_path, option):
    done = cli("run", "--resume", tmp_path, *option)
    assert done.code == 2 and len(done.err) == 1
    assert f"than --engine and --track, found {option[0]}" in done.err[0]


@pytest.mark.parametrize("key", ["resume", "overwrite"])
def test_the_keys_of_flower_are_options_here(cli, tmp_path, key):
    done = cli("run", "--out", tmp_path, "--set", f"{key}=true")
    option = {"resume": "--resume RUN", "overwrite": "--overwrite"}[key]
    assert done.code == 2 and f"`dance-flwr run {option}`" in done.err[-1]


def test_the_package_is_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dance_flwr", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("dance_flwr", run_name="__main__")
    assert not end.value.code and capsys.readouterr().out.startswith("dance-flwr ")


def test_evidence_is_shown_on_a_terminal_that_knows_ascii_alone(dance, cli, monkeypatch):
    """As with `LC_ALL=C PYTHONUTF8=0`: the marks of a span are no ASCII."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="surrogateescape")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert cli("evidence", "show", dance.folder, "--client", 0).code == 0
        stream.flush()
    shown = stream.buffer.getvalue().decode("ascii")
    assert "\\u27e6" in shown and "\\u27e7" in shown
