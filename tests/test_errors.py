"""The words of refusals: which name is meant, what the choices are, one thing and several."""

import click
import pytest
import typer

from dance_flwr.cli.main import app
from dance_flwr.config import plugins
from dance_flwr.config.plugins import Registry
from dance_flwr.config.tree import flat_fields
from dance_flwr.data.graphs.catalogue import CATALOGUE
from dance_flwr.errors import UserError, near

REGISTRIES = [value for value in vars(plugins).values() if isinstance(value, Registry)]
FAR = "zzyzx-0"


def names_of(command):
    """The names in every group of commands."""
    if isinstance(command, click.Group):
        yield [*command.commands]
        for child in command.commands.values():
            yield from names_of(child)


NAMES = [[*registry] for registry in REGISTRIES] + [[*CATALOGUE], [*flat_fields()]]
NAMES += names_of(typer.main.get_command(app))


def message(action, *arguments):
    """The line with which an action is refused."""
    with pytest.raises(UserError) as refused:
        action(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_a_slip_is_answered_with_the_name(names):
    """Two letters too many, two that are exchanged, or capitals."""
    for name in names[:: 1 + len(names) // 10]:
        middle = len(name) // 2
        exchanged = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
        for slip in {f"{name[:middle]}xq{name[middle:]}", exchanged, name.upper()} - {*names}:
            assert near(slip, names) == name, slip
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
