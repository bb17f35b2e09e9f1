"""Where texts of edges lie in the texts of nodes, which `text_record` composes."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.card import EDGE_TEXTS, ClientCard
from dance_flwr.errors import DataError

_NUMBERS = ("node", "start", "end", "other", "edge")


@dataclass(frozen=True)
class EdgeSpans:
    """Where texts of edges lie in the texts of nodes: two rows per text, by node and place.

    Attributes
    ----------
    node : [2m] int64 row of the node whose text holds it; other : [2m] row of the other end
    start, end : [2m] int64 characters of the node's text, in which it stands as it was given
    edge : [2m] int64, number of the text in the order of the file, the same at both ends
    """

    node: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    other: NDArray[np.int64]
    edge: NDArray[np.int64]

    @cached_property
    def _rows(self) -> dict[int, tuple[int, int]]:
        nodes, first, counts = np.unique(self.node, return_index=True, return_counts=True)
        ends = zip(first.tolist(), (first + counts).tolist(), strict=True)
        return dict(zip(nodes.tolist(), ends, strict=True))

    def first_start(self, node: int) -> int | None:
        """Return where the first text of an edge starts in a node's text; None without any."""
        return int(self.start[self._rows[node][0]]) if node in self._rows else None

    def others_in(self, node: int, start: int, end: int) -> list[int]:
        """Return the other ends of the edges whose texts a span reads; distinct, in their order."""
        first, last = self._rows.get(node, (0, 0))
        after = bisect_right(self.end[first:last].tolist(), start)
        overlapping = [
            int(self.other[row]) for row in range(first + after, last) if self.start[row] < end
        ]
        return list(dict.fromkeys(overlapping))

    def write(self, folder: Path, ids: Sequence[str]) -> None:
        """Write `edge_texts.parquet`, with the id of the other end beside its row."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: pa.array(getattr(self, name)) for name in _NUMBERS}
        columns["other_id"] = pa.array([ids[row] for row in self.other.tolist()], pa.string())
        pq.write_table(pa.table(columns), folder / EDGE_TEXTS)

    @classmethod
    def read(cls, folder: Path) -> "EdgeSpans":
        """Read `edge_texts.parquet` of a client's folder."""
        # Whoever reads no text of an edge does not wait for pyarrow.
        import pyarrow as pa

        from dance_flwr.data.graphs.tables import parquet_table

        try:
            table = parquet_table(folder / EDGE_TEXTS, "edges").read(_NUMBERS)
            return cls(**{name: table[name].cast(pa.int64()).to_numpy() for name in _NUMBERS})
        except (DataError, pa.ArrowException) as error:
            raise DataError(
                f"{folder / EDGE_TEXTS}: expected where the texts of edges lie, found: {error}; "
                "copy the client's folder again, or prepare it again"
            ) from None


def edge_spans(folder: Path, card: ClientCard) -> EdgeSpans | None:
    """Return where texts of edges lie in the texts of a client; None if it has none."""
    # Why by the card (decision 27): a file that is added to a folder changes nothing.
    return EdgeSpans.read(folder) if EDGE_TEXTS in card.files else None
