"""Every command that a document shows exists, with every option that it is given."""

import click
import pytest
import typer
from support.documents import commands_of
from support.project import PROJECT

from dance_flwr.cli.main import app

DOCUMENTS = [PROJECT / "README.md", *sorted(PROJECT.glob("docs/*.md"))]


def unknown(words):
    """What of a command does not exist; "" if all of it does."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    words = list(words)
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
        context = click.Context(command, parent=context)
    options = {name for item in command.get_params(context) for name in item.opts}
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        return words[0]
    if command.context_settings.get("ignore_unknown_options"):  # of Flower's own program
        return ""
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((name for name in given if name not in options), "")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_a_document_exist(path):
    found = list(commands_of(path))
    assert [(words, unknown(words)) for words in found if unknown(words)] == []


def test_the_readme_shows_most_commands():
    shown = {words[0] for words in commands_of(PROJECT / "README.md")}
    assert {"run", "evidence", "export", "predict", "report", "status", "experiment"} <= shown


def test_a_command_or_an_option_that_does_not_exist_is_found():
    assert unknown(["evidence", "pages", "RUN"]) == "pages"
    assert unknown(["evidence", "page", "RUN", "--clients", "1"]) == "--clients"
