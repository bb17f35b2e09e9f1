"""Every command that a document shows exists, with every option that it is given."""

import click
import typer
from support.documents import commands_of
from support.project import PROJECT

from dance_flwr.cli.main import STUDIES, app

DOCUMENTS = [PROJECT / "README.md", *sorted(PROJECT.glob("docs/*.md"))]


def unknown(words):
    """Return the first word or option of a command that does not exist, "" if all of them do."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    words = list(words)
    if words[0] in STUDIES and words[0] not in command.commands:  # of a package that is not here
        return ""
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
        context = click.Context(command, parent=context)
    options = {name for item in command.get_params(context) for name in item.opts}
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        return words[0]
    if command.context_settings.get("ignore_unknown_options"):  # of Flower's own program
        return ""
    used = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((name for name in used if name not in options), "")


def test_commands_of_the_documents_exist():
    commands = [(path.name, words) for path in DOCUMENTS for words in commands_of(path)]
    assert len(commands) > 50
    assert [(*command, unknown(command[1])) for command in commands if unknown(command[1])] == []
