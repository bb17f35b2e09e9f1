"""How configuration keys are declared: one dataclass field per key, in sections."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Protocol, Self, get_type_hints

Value = bool | int | float | str

BOUNDS = (
    ("above", ">", operator.gt),
    ("least", ">=", operator.ge),
    ("most", "<=", operator.le),
    ("below", "<", operator.lt),
)


def option(
    default: Value,
    text: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
) -> Any:
    """Declare one configuration key: its default, its help text and the values it accepts.

    Parameters
    ----------
    above, below : open bounds; least, most : closed bounds
    choices : the accepted values, or a function that lists them, such as the names of a registry
    """
    rules = {"above": above, "least": least, "most": most, "below": below, "choices": choices}
    return field(default=default, metadata={"help": text, **rules})


def choices_of(item: Field[Any]) -> tuple[str, ...]:
    """Return the values that a key accepts, empty where any value of its type will do."""
    choices = item.metadata["choices"]
    return tuple(choices()) if callable(choices) else tuple(choices)


class _HasSections(Protocol):
    @property
    def sections(self) -> tuple[Section, ...]: ...


@dataclass(frozen=True)
class Section:
    """Keys that a plug-in brings, `<name>.<key>` on the command line.

    A subclass is a frozen dataclass whose fields are declared with `option`, and names itself with
    `name`. Code that needs the keys takes the subclass, and finds it in a run's configuration with
    `of`.
    """

    name: ClassVar[str]

    @classmethod
    def of(cls, config: _HasSections) -> Self:
        """Return this section of a run's configuration.

        Raises
        ------
        LookupError : the configuration was made before the plug-in was registered
        """
        for section in config.sections:
            if type(section) is cls:
                return section
        raise LookupError(f"expected section {cls.name!r} in the configuration, found none")

    @classmethod
    def paper_values(cls, known: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the flat keys that `paper = true` fixes, given those that the user set."""
        return {}

    def problems(self) -> list[str]:
        """Return what is wrong between keys of this section, a line each."""
        return []


def leaves_of(cls: type, prefix: str = "") -> dict[str, tuple[Field[Any], type]]:
    """Return flat key -> (dataclass field, type) of every key of a configuration class, in order.

    Nested dataclasses become `<field>.<key>`; fields that are no keys are left out.
    """
    hints = get_type_hints(cls)
    leaves: dict[str, tuple[Field[Any], type]] = {}
    for item in fields(cls):
        key = prefix + item.name.replace("_", "-")
        kind = hints[item.name]
        if is_dataclass(kind):
            leaves |= leaves_of(kind, key + ".")  # type: ignore[arg-type]
        elif "help" in item.metadata:
            leaves[key] = (item, kind)
    return leaves
