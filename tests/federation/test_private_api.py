"""What of Flower is not its public API: where it is, and that one module alone imports it."""

from importlib import import_module

import pytest
from support.project import PROJECT

from dance_flwr.federation import flower

SOURCES = [
    *sorted((PROJECT / "dance_flwr").rglob("*.py")),
    PROJECT / "client_app.py",
    PROJECT / "server_app.py",
]


def moved(places):
    """Names of `places` (name -> "module:attribute") that are not where they are said to be."""
    found = []
    for name, place in places.items():
        module, _, attribute = place.partition(":")
        try:
            getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            found.append(f"{name}: expected {place}, found {error}")
    return found


def test_every_private_name_is_where_it_was():
    assert moved(flower.PRIVATE) == []


def test_only_a_name_that_is_there_is_replaced(monkeypatch):
    module = import_module("flwr.supernode.runtime.run_clientapp")
    monkeypatch.setattr(module, "install_from_fab", module.install_from_fab)
    flower.replace("install_from_fab", len)
    assert module.install_from_fab is len
    monkeypatch.setitem(flower.PRIVATE, "Gone", "flwr.supernode.runtime.run_clientapp:gone")
    with pytest.raises(AttributeError, match="gone"):
        flower.replace("Gone", len)
    assert not hasattr(module, "gone")


def test_every_private_name_is_used():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.name != "flower.py")
    masks = {"CLIENT_MASKS", "SERVER_MASKS"}  # `install` finds them through MASK_USERS
    assert [name for name in flower.PRIVATE if name not in text and name not in masks] == []
