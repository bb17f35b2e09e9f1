"""What the page of a run is made of: sections, tables, names of clients, and numbers as text."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from dance_flwr.config.paths import MANIFEST
from dance_flwr.data.partition.manifest import read_manifest
from dance_flwr.deploy.invitation import AGREED, Invitation
from dance_flwr.errors import UserError
from dance_flwr.metrics import wilson_interval
from dance_flwr.pages.charts import Amount
from dance_flwr.runs.result import Round
from dance_flwr.runs.run import Run

Cells = Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table, with the heading of a row in its first cell; whether the others are numbers."""

    caption: str
    headings: Cells
    rows: Sequence[Cells]
    numbers: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page: charts with the tables of their numbers, tables without a chart, and
    charts whose numbers are in such a table.
    """

    name: str
    title: str
    sentences: Sequence[str] = ()
    parts: Sequence[tuple[Markup, Table | None]] = ()


MAX_BARS = 60  # rows of a chart; its table has all
NO_CHART = Markup("")
NO_NODES = "-"  # instead of a score over no nodes


def client_names(facts: Run) -> dict[int, str]:
    """Return what each client is called: its site, of a federation or in the data, or its number.

    The sites are those of the federation whose server wrote the run, or of a partition by sites.
    """
    sites: Sequence[str] = ()
    federation = Path(facts.status.folder).resolve().parent.parent / AGREED
    with suppress(UserError):  # another file of that name, or a manifest that is gone
        if federation.is_file():
            sites = Invitation.read(federation).sites
        elif facts.partition:
            rows = read_manifest(Path(facts.partition) / MANIFEST)["clients"]
            sites = [row.get("site", "") for row in rows]
    named = {k: site for k, site in enumerate(sites) if site}
    return {k: named.get(k, f"client {k}") for k in facts.clients}


def numbered(client: int, names: Mapping[int, str]) -> str:
    """Return the name of a client and its number, which commands take."""
    name = names.get(client, f"client {client}")
    return name if name == f"client {client}" else f"{name} (client {client})"


def readings(rows: Sequence[Round]) -> list[str]:
    """Return the names of the readings of these rounds: what is deployed, then what explains it."""
    return ["deployed", *sorted({view for row in rows for view in row.views} - {"deployed"})]


def measured(share: float | None, nodes: int) -> Amount | None:
    """Return an accuracy over test nodes with its 95 % interval; None without nodes.

    Fewer than a hundred nodes have no decimals. Where a plus and minus would leave 0 to 100 %, the
    interval is written out.

    Examples
    --------
    >>> measured(309 / 351, 351).text, measured(1.0, 13).text
    ('88.0 % ± 3.4', '100 % [77, 100]')
    """
    if share is None or not nodes:
        return None
    low, high = interval = wilson_interval(round(share * nodes), nodes)
    half, digits = (high - low) / 2, digits_of(nodes)
    near = f"± {100 * half:.{digits}f}"
    if not half <= share <= 1 - half:
        near = f"[{100 * low:.{digits}f}, {100 * high:.{digits}f}]"
    return Amount(share, f"{one(share, digits)} {near}", interval)


def digits_of(nodes: int) -> int:
    """Return the digits after the point that an accuracy over so many nodes can have, in %."""
    return 1 if nodes >= 100 else 0


def text_of(amount: Amount | None) -> str:
    """Return an amount as text, a dash where there is none."""
    return amount.text if amount else NO_NODES


def ratio(count: int, total: int) -> float | None:
    """Return count / total; None without nodes."""
    return count / total if total else None


def percent(value: float | None) -> float | None:
    """Return a share as a percentage."""
    return None if value is None else 100 * value


def one(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage, with one digit after the point unless told otherwise."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def sum_of(values: Mapping[str, float | None]) -> float:
    """Return the sum of the values that are known."""
    return sum(value or 0.0 for value in values.values())


def six(value: float | None) -> str:
    """Return a value with six significant digits."""
    return "" if value is None else f"{value:.6g}"


def three(value: float | None) -> str:
    """Return a value with three significant digits."""
    return "" if value is None else f"{value:.3g}"
