"""How configuration keys are declared: one dataclass field per key, grouped in sections."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, ClassVar, Protocol, Self

Value = bool | int | float | str
FlatFields = dict[str, Field[Any]]  # flat key -> dataclass field, whose default has its type

# Named as in pydantic; each with its sign for messages, and its test.
BOUNDS = (("gt", ">", gt), ("ge", ">=", ge), ("le", "<=", le), ("lt", "<", lt))


def option(
    default: Value | tuple[str, ...], text: str, *, choices: Collection[str] = (), **bounds: float
) -> Any:
    """Declare one configuration key: its default, its help text and the values it accepts.

    Parameters
    ----------
    default : the default, whose type is the type of the key
    text : one line for `dance-flwr list keys` and docs/configuration.md
    choices : the accepted values, or the registry whose names they are
    **bounds : gt, ge, le, lt; each may be omitted
    """
    return field(default=default, metadata={"help": text, "choices": choices, **bounds})


class _HasSections(Protocol):
    @property
    def sections(self) -> tuple[Section, ...]: ...


@dataclass(frozen=True)
class Section:
    """Base class for the keys of a plug-in, `<name>.<key>` on the command line.

    A subclass is a frozen dataclass that sets `name` and declares its keys with `option`. A field
    without `option` is a constant: no configuration sets it, a test may. Code that reads the keys
    takes an instance of the subclass, which `of` returns for a run.

    Attributes
    ----------
    name : prefix of the keys; unique among the sections of all plug-ins
    """

    name: ClassVar[str]

    @classmethod
    def of(cls, config: _HasSections) -> Self:
        """Return the instance of this section in a run's configuration.

        Raises
        ------
        LookupError : the configuration has no such section; its plug-in is not registered, or was
            registered after the configuration was built
        """
        for section in config.sections:
            # Exactly this class: a subclass is a section of its own.
            if type(section) is cls:
                return section
        names = ", ".join(section.name for section in config.sections) or "none"
        raise LookupError(f"expected section {cls.name!r} in the configuration, found {names}")

    @classmethod
    def paper_values(cls, known: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the flat keys that `paper = true` sets, of this section and of others.

        Parameters
        ----------
        known : the flat keys that the user set
        """
        return {}

    def problems(self) -> list[str]:
        """Return the contradictions between keys of this section, one line each."""
        return []


@lru_cache(maxsize=256)  # of every class; a grid names its runs by thousands of configurations
def leaves_of(cls: type) -> FlatFields:
    """Return flat key -> dataclass field of every key of a configuration class, in order.

    Keys of a `Section` begin with its name; constants are omitted.
    """
    prefix = f"{cls.name}." if issubclass(cls, Section) else ""
    keys = [item for item in fields(cls) if "help" in item.metadata]
    return {prefix + item.name.replace("_", "-"): item for item in keys}
