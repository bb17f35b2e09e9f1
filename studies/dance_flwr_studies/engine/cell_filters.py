"""Which cells of a grid a command runs: by their labels, or a share of n.

So a long study can be divided among machines, or continued on another one. Every machine computes
the same division without communication.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dance_flwr.errors import UserError
from dance_flwr.runs.locks import exclusive, is_locked
from dance_flwr_studies.engine.cells import Cell, dataset_name
from dance_flwr_studies.engine.folder import cell_name, label_key, settings_of


def where(cells: Sequence[Cell], pairs: Sequence[str]) -> list[Cell]:
    """Return the cells that carry every label of `pairs`; several values of one label are a union.

    Parameters
    ----------
    pairs : LABEL=VALUE, as in `regime=text` or `variant=dance w/o NC`
    """
    wanted: dict[str, set[str]] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        # As text: a label may be a number, and the command line has strings.
        values = {str(cell.labels[name]) for cell in cells if name in cell.labels}
        if value not in values:
            names = sorted({label for cell in cells for label in cell.labels})
            expected = f"a {name} among {sorted(values)}" if values else f"a label among {names}"
            raise UserError(f"--where: expected {expected}, found {pair!r}")
        wanted.setdefault(name, set()).add(value)
    return [
        cell
        for cell in cells
        if all(str(cell.labels.get(name)) in values for name, values in wanted.items())
    ]


_FOLDER = "shards"  # of a study: one lock for each shard that ever ran in it


@dataclass(frozen=True)
class Shard:
    """Share `number` of `shards` shares of a grid, counted from 1."""

    number: int
    shards: int

    def __str__(self) -> str:
        return f"{self.number}/{self.shards}"

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells of this share, in their order.

        Runs are sorted by data set, method, settings and seed, then dealt one by one. The shares
        are disjoint and complete, and their numbers of runs of a method on a data set differ by at
        most one. Cells with the same run are in the same share.
        """
        names = [cell_name(cell) for cell in cells]
        runs = {name: _order(cell) for name, cell in zip(names, cells, strict=True)}
        # Why one by one (decision 24): it balances methods of different costs without an estimate,
        # which would differ between machines.
        mine = set(sorted(runs, key=runs.__getitem__)[self.number - 1 :: self.shards])
        return [cell for name, cell in zip(names, cells, strict=True) if name in mine]


def read_shard(text: str) -> Shard:
    """Return the shard that `i/n` names, 1 <= i <= n."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, shards = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise UserError(
            f"--shard: expected i/n with 1 <= i <= n, as in 3/8, found {text!r}; a job array that "
            "counts from 0 needs --array=1-n"
        )
    return Shard(number, shards)


@contextmanager
def at_work(root: Path, shard: Shard | None) -> Iterator[None]:
    """Lock a study for a whole grid, or for one share beside others of the same division."""
    division = f"-of-{shard.shards}" if shard else ""
    claimed = root / _FOLDER / f"{shard.number}{division}" if shard else root
    with exclusive(claimed, "another dance-flwr experiment"):
        # Own lock first, then the others': of two commands that start together, at least one sees
        # the other.
        for other in (root, *sorted(root.glob(f"{_FOLDER}/*"))):
            beside = shard is not None and other.name.endswith(division) and other != root
            if other != claimed and not beside and is_locked(other):
                raise UserError(
                    f"{root}: expected nobody else at work but shards of the same division, "
                    f"found {'a shard, ' + other.name if other != root else 'the whole grid'}; "
                    "wait for it, or choose another --out"
                )
        yield


def _order(cell: Cell) -> tuple[str, str, str, int, str]:
    """Return what sorts a cell: neighbours cost about the same."""
    if cell.measure:
        return "", cell.measure, "", 0, label_key(cell.labels)
    settings = settings_of(cell.config)
    # The seed comes last: runs that differ in it alone go to different shares.
    seed = int(settings.pop("seed"))
    text = json.dumps(settings, sort_keys=True)
    return dataset_name(cell.config.data), cell.config.method, text, seed, ""
