"""The optional columns `text` and `weight` of `edges.parquet`, read and written.

An edge may have several rows, as in a file of relations: each text has one, and the weight of an
edge is the sum over its rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dance_flwr.data.graphs.edges import EdgeList, EdgeTexts, check_weights, csr_rows, pair_codes
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.errors import DataError

TEXT, WEIGHT = "text", "weight"


def attribute_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return which of the columns `text` and `weight` a table of edges has."""
    return tuple(name for name in (TEXT, WEIGHT) if name in names)


def edge_list(
    columns: dict[str, Any], ends: tuple[NDArray[np.int64], NDArray[np.int64]], where: str
) -> EdgeList:
    """Return the rows of a table of edges.

    Parameters
    ----------
    columns : string arrays by name, of `attribute_columns` as far as the table has them
    ends : rows of the two nodes of each row of the table
    """
    weight = None
    if WEIGHT in columns:
        try:
            weight = np.array(columns[WEIGHT].to_pylist(), np.float32)
        except ValueError as error:
            raise DataError(
                f"{where}: expected a number in every row of {WEIGHT!r}, found {error}; correct "
                "it, or leave the column out"
            ) from None
        check_weights(weight, len(ends[0]), where)
    text = columns[TEXT].to_pylist() if TEXT in columns else None
    return EdgeList(*ends, weight, text)


def attributed_table(graph: TextGraph, ids: Any) -> Any:
    """Return the Arrow table of a graph's edges with what it has of weights and texts.

    Texts come first, in their order and one a row; then the edges without one. `edge_list`
    gives the same weights and texts again.

    Parameters
    ----------
    ids : string array of the node ids
    """
    n, rows = graph.num_nodes, csr_rows(graph.indptr)
    once = rows < graph.indices
    low, high = rows[once], graph.indices[once]
    texts = graph.edge_texts or EdgeTexts(low[:0], low[:0], ())
    codes, listed = pair_codes(low, high, n), pair_codes(texts.source, texts.target, n)
    rest = ~np.isin(codes, listed)
    ends = {
        "source": np.concatenate([texts.source, low[rest]]),
        "target": np.concatenate([texts.target, high[rest]]),
    }
    columns = {name: ids.take(pa.array(rows)) for name, rows in ends.items()}
    if graph.edge_texts is not None:
        columns[TEXT] = pa.array([*texts.texts, *[None] * int(rest.sum())], pa.string())
    if graph.weights is not None:
        weights = graph.weights[once]
        # An edge of several texts has its weight in the first row, so that the sum is its weight.
        pairs, first = np.unique(listed, return_index=True)
        order = np.argsort(codes, kind="stable")
        of_texts = np.zeros(len(listed), np.float32)
        of_texts[first] = weights[order[np.searchsorted(codes, pairs, sorter=order)]]
        columns[WEIGHT] = pa.array(np.concatenate([of_texts, weights[rest]]), pa.float32())
    return pa.table(columns)
