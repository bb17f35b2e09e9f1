"""What the page of a run is made of: sections, tables, and numbers as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Cells = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes
    ----------
    folded : what opens it; "" = it is open; numbers : whether its cells are numbers
    """

    caption: str
    headings: Cells
    rows: Sequence[Cells]
    folded: str = ""
    numbers: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page; a chart comes with the table below it, and some tables have none."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    parts: Sequence[tuple[Markup, Table]] = ()


LATER = "Known when the run has ended."
NO_CHART = Markup("")
NO_NODES = "-"  # instead of a score over no nodes


def ratio(count: int, total: int) -> float | None:
    """Return count / total; None without nodes."""
    return count / total if total else None


def percent(value: float | None) -> float | None:
    """Return a share as a percentage."""
    return None if value is None else 100 * value


def sum_of(values: Mapping[str, float | None]) -> float:
    """Return the sum of the values that are known."""
    return sum(value or 0.0 for value in values.values())


def four(value: float | None) -> str:
    """Return a value with four digits after the point."""
    return "" if value is None else f"{value:.4f}"


def six(value: float | None) -> str:
    """Return a value with six significant digits."""
    return "" if value is None else f"{value:.6g}"


def three(value: float | None) -> str:
    """Return a value with three significant digits."""
    return "" if value is None else f"{value:.3g}"
