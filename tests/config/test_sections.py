"""Sections: how a plug-in declares keys, finds them in a run, and checks them."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from dance_flwr.config.options import Section, option
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import RunConfig, flat_fields, flatten, parse, section_types
from dance_flwr.dance.config import PAPER, DanceConfig
from dance_flwr.errors import ConfigError

DEFAULT = RunConfig()


@dataclass(frozen=True)
class ToySection(Section):
    """A section of a method of another package."""

    name: ClassVar[str] = "toy"
    low: int = option(1, "lower end of the range", ge=0)
    high: int = option(5, "upper end of the range", le=9)
    kind: str = option("near", "side to start from", choices=("near", "far"))
    _hidden: int = 3

    @classmethod
    def paper_values(cls, known):
        return {"toy.high": known.get("toy.low", cls.low) + 1}

    def problems(self):
        return [] if self.low < self.high else [f"toy.low: expected < toy.high, found {self.low}"]


@dataclass(frozen=True)
class Spec:
    """What the configuration reads of a method."""

    sections: tuple = (ToySection,)
    reading: dict = field(default_factory=dict)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(METHODS.builtin, "toy", Spec())
    monkeypatch.setitem(METHODS.builtin, "toy-too", Spec((ToySection,)))


def problems(values):
    with pytest.raises(ConfigError) as error:
        parse(values)
    return error.value.problems


def test_of_names_a_missing_section():
    with pytest.raises(LookupError, match=r"expected section 'toy' .* found dance, "):
        ToySection.of(DEFAULT)
    with pytest.raises(LookupError, match=r"expected section 'dance' .* found none"):
        DanceConfig.of(replace(DEFAULT, sections=()))


def test_a_section_that_two_methods_share_counts_once(toy):
    assert section_types().count(ToySection) == 1
    assert [key for key in flat_fields() if key.startswith("toy.")] == [
        "toy.low",
        "toy.high",
        "toy.kind",
    ]


def test_keys_of_a_plug_in_are_parsed_checked_and_flattened(toy):
    config = parse({"method": "toy", "toy.low": 2, "toy.kind": "far"})
    assert ToySection.of(config) == ToySection(2, 5, "far")
    assert flatten(config)["toy.low"] == 2 and parse(flatten(config)) == config
    assert problems({"toy.low": -1, "toy.kind": "side"}) == [
        "toy.low: expected a whole number >= 0, found -1",
        "toy.kind: expected one of near, far, found 'side'",
    ]
    assert problems({"toy.lwo": 1}) == ["unknown key 'toy.lwo': did you mean 'toy.low'?"]


def test_paper_fixes_the_values_of_every_section(toy):
    given = {"paper": True, "toy.low": 3, "toy.high": 9, "dance.hop2-budget": 3, "ema-decay": 0.9}
    config = parse(given)
    values = flatten(config)
    assert ToySection.of(config) == ToySection(3, 4)
    assert PAPER.items() <= values.items() and values["dance.hop2-pool"] == 3
    free = flatten(parse(given | {"paper": False}))
    assert {key: free[key] for key in free.keys() & given.keys()} == {
        **{"paper": False, "dance.hop2-budget": 3, "ema-decay": 0.9},
    }


@pytest.mark.parametrize("section", section_types(), ids=lambda section: section.name)
def test_paper_values_name_keys_of_the_run(section):
    values = section.paper_values({})
    assert values.keys() <= flat_fields().keys() and parse(values)
