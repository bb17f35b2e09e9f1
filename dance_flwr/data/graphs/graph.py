"""`TextGraph`: an undirected text-attributed graph G = (V, A, S), checked on construction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.codes import NO_SPLIT as NO_SPLIT
from dance_flwr.data.graphs.codes import SPLIT_NAMES as SPLIT_NAMES
from dance_flwr.data.graphs.codes import TEST as TEST
from dance_flwr.data.graphs.codes import TRAIN as TRAIN
from dance_flwr.data.graphs.codes import UNLABELLED as UNLABELLED
from dance_flwr.data.graphs.codes import VAL as VAL
from dance_flwr.data.graphs.edges import EdgeTexts, check_attributes
from dance_flwr.errors import DataError, counted

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from torch_geometric.data import Data


@dataclass(frozen=True)
class TextGraph:
    """An undirected graph whose nodes have texts and, where known, labels.

    The metadata of an attribute with one entry per node names its column of a node table. From it
    follow reading, writing, checking, slicing and joining. Strings of an attribute with the default
    None are kept as they are: another column of this kind is one more line.

    Attributes
    ----------
    name : name of the graph in manifests and results
    ids : [n] unique strings, node ids of the user
    texts : [n] raw node texts; an empty text is allowed
    labels : [n] int64, index into `class_names`; `UNLABELLED` (-1) if the label is unknown
    class_names : classes of the global schema, sorted
    indptr, indices : CSR neighbour lists, int64; symmetric, no self loops, no duplicates
    split : [n] uint8, one of NO_SPLIT, TRAIN, VAL, TEST
    provenance : origin of the data (package versions, files), for manifests
    site : [n] institution that holds each node, "" where none is known; None without the column
    weights : [2E] float32 >= 0, in the order of `indices`; symmetric; None = all 1
    edge_texts : the texts of edges; None without any

    Raises
    ------
    DataError : shapes disagree, ids repeat, labels or neighbours are out of range
    """

    name: str
    ids: NDArray[np.str_] = field(metadata={"column": "id"})
    texts: list[str] = field(metadata={"column": "text"})
    labels: NDArray[np.int64] = field(metadata={"column": "label"})
    class_names: tuple[str, ...]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    split: NDArray[np.uint8] = field(metadata={"column": "split"})
    provenance: dict[str, str] = field(default_factory=dict)
    site: NDArray[np.str_] | None = field(default=None, metadata={"column": "site"})
    weights: NDArray[np.float32] | None = None
    edge_texts: EdgeTexts | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        for what, values in self.per_node().items():
            if len(values) != n:
                raise DataError(
                    f"graph {self.name!r}: expected {n} entries of {what}, one per node, "
                    f"found {len(values)}"
                )
        if len(set(self.ids.tolist())) != n:  # a sixth of the time of np.unique
            values, counts = np.unique(self.ids, return_counts=True)
            raise DataError(
                f"graph {self.name!r}: expected unique node ids, found "
                f"{str(values[counts > 1][0])!r} more than once; rename one"
            )
        if n and not (self.labels.min() >= -1 and self.labels.max() < len(self.class_names)):
            raise DataError(
                f"graph {self.name!r}: expected labels in -1..{len(self.class_names) - 1}, "
                f"found {self.labels.min()}..{self.labels.max()}"
            )
        if len(self.indptr) != n + 1 or self.indptr[-1] != len(self.indices):
            raise DataError(
                f"graph {self.name!r}: expected neighbour lists of {n} nodes, "
                f"found {len(self.indptr) - 1}"
            )
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < n):
            raise DataError(
                f"graph {self.name!r}: expected neighbours in 0..{n - 1}, "
                f"found {self.indices.min()}..{self.indices.max()}"
            )
        check_attributes(self.weights, self.edge_texts, (n, len(self.indices)), self.name)

    def __repr__(self) -> str:
        # Without its texts, which would be copied into logs and saved notebooks.
        return (
            f"TextGraph({self.name!r}: {counted(self.num_nodes, 'node')}, "
            f"{counted(self.num_edges, 'edge')}, "
            f"{counted(len(self.class_names), 'class', 'classes')})"
        )

    @classmethod
    def from_pyg(
        cls,
        data: "Data",
        texts: Sequence[str],
        *,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        name: str = "graph",
        mask_column: int | None = None,
        **options: Any,
    ) -> "TextGraph":
        """Return the graph of a torch-geometric `Data`, with a text for every node.

        `edge_index` is read as undirected: both directions are stored, self loops and duplicates
        dropped. `y` gives the labels (-1 = unknown), `train_mask`, `val_mask` and `test_mask` the
        split, and `site` (n strings or integers) the institutions. `x` is not read: a frozen
        encoder makes the features from the texts. Classes are sorted by name, as everywhere in this
        package, and the labels numbered accordingly; `to_pyg(class_names=...)` numbers them by any
        other order. `edge_weight` ([E] >= 0) and the list `edge_text` (E strings) go with the
        edges: duplicates keep all texts, and their weights are summed. A graph that lists every
        edge in both directions alike is read in one of them.

        Parameters
        ----------
        texts : one per node, in the order of the nodes; an empty text, None or NaN is none
        class_names : name of class 0, 1, ... of `y`; None = their numbers
        ids : unique ids of the nodes, strings or integers; None = "0", "1", ...
        mask_column : which column of two-dimensional masks is the split
        options : as in `read_graph`, such as `missing=("NA",)`

        Raises
        ------
        DataError : `data` is not a homogeneous graph, a part has another length or type, a node is
            in two masks, a class or a node has no name, or a text cannot be stored
        """
        arguments = {"texts": texts, "class_names": class_names, "ids": ids}
        return _reader().graph_of_data(  # type: ignore[no-any-return]
            data, arguments, mask_column, name, options
        )

    @classmethod
    def from_pandas(
        cls, nodes: Any, edges: Any, *, name: str = "graph", **options: Any
    ) -> "TextGraph":
        """Return the graph of a data frame of nodes and one of edges, by the rules of `read_graph`.

        Without a column of ids, the index names the nodes.

        Parameters
        ----------
        options : as in `read_graph`: `text="title,abstract"`, `label="none"`, `id="key"`, ...
        """
        return _reader().graph_of_frames(nodes, edges, name, options)  # type: ignore[no-any-return]

    @classmethod
    def from_records(
        cls,
        nodes: Iterable[Mapping[str, Any]],
        edges: Iterable[Mapping[str, Any]] | None = None,
        *,
        name: str = "graph",
        **options: Any,
    ) -> "TextGraph":
        """Return the graph of records of nodes and of edges, by the rules of `read_graph`.

        Parameters
        ----------
        edges : None if a column of the nodes names their neighbours
        options : as in `read_graph`
        """
        return _reader().graph_of_records(nodes, edges, name, options)  # type: ignore[no-any-return]

    @classmethod
    def from_networkx(cls, graph: Any, *, name: str = "graph", **options: Any) -> "TextGraph":
        """Return a NetworkX graph with node attributes, by the rules of `read_graph`.

        Parameters
        ----------
        options : as in `read_graph`
        """
        return _reader().graph_of_network(graph, name, options)  # type: ignore[no-any-return]

    def to_pyg(self, *, class_names: Sequence[str] | None = None) -> "Data":
        """Return the graph as a torch-geometric `Data`, without features.

        It has `edge_index` (both directions), `y` (-1 = unknown), the three masks, and the lists
        `text`, `ids` and `class_names`; where the graph has some, the list `site`, `edge_weight`
        [2E] and a list `edge_text`, several texts as paragraphs. `dance_flwr.api.encode(graph)`
        gives an `x`.

        Parameters
        ----------
        class_names : the order of the classes in `y`; None = that of this graph

        Raises
        ------
        DataError : `class_names` lacks a class
        """
        from dance_flwr.data.graphs.pyg import data_of

        return data_of(self, self.class_names if class_names is None else tuple(class_names))

    @property
    def num_nodes(self) -> int:
        """Number of nodes |V|."""
        return len(self.ids)

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2

    @classmethod
    def columns(cls, *, plain: bool = False) -> dict[str, str]:
        """Return column of a node table -> attribute.

        Parameters
        ----------
        plain : only the optional columns whose strings are kept as they are
        """
        return {
            entry.metadata["column"]: entry.name
            for entry in fields(cls)
            if "column" in entry.metadata and (entry.default is None or not plain)
        }

    def per_node(self) -> dict[str, Any]:
        """Return attribute -> its entries, one per node, of every column that the graph has."""
        present = {name: getattr(self, name) for name in self.columns().values()}
        return {name: values for name, values in present.items() if values is not None}

    def subgraph(self, nodes: NDArray[np.int64], name: str) -> "TextGraph":
        """Return the induced subgraph on `nodes` ([m] int64 indices), in this order."""
        place = np.full(self.num_nodes, -1)
        place[nodes] = np.arange(len(nodes))
        # The lists of these nodes alone: a partition takes a subgraph for each of many clients.
        first, last = self.indptr[nodes], self.indptr[nodes + 1]
        ends = np.cumsum(last - first)
        entries = np.arange(ends[-1] if len(ends) else 0) + np.repeat(last - ends, last - first)
        owner, target = np.repeat(np.arange(len(nodes)), last - first), place[self.indices[entries]]
        order = np.lexsort((target, owner))
        order = order[target[order] >= 0]
        rows: dict[str, Any] = {
            attribute: [values[i] for i in nodes] if isinstance(values, list) else values[nodes]
            for attribute, values in self.per_node().items()
        }
        return replace(
            self,
            **rows,
            name=name,
            indptr=np.searchsorted(owner[order], np.arange(len(nodes) + 1)),
            indices=target[order],
            weights=None if self.weights is None else self.weights[entries[order]],
            edge_texts=self.edge_texts and self.edge_texts.between(place),
        )

    def adjacency(self) -> "csr_matrix":
        """Return A as a scipy CSR matrix of uint8 ones, [n, n]."""
        from scipy.sparse import csr_matrix  # here, as most runs find their partition made

        n = self.num_nodes
        return csr_matrix(
            # One byte per edge, as all values are 1.
            (np.ones(len(self.indices), np.uint8), self.indices, self.indptr),
            shape=(n, n),
        )


def csr_from_pairs(
    source: NDArray[np.int64], target: NDArray[np.int64], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (indptr, indices), int64 each, of the undirected graph with these edges.

    Both directions are stored, self loops dropped, duplicates merged and neighbours sorted.
    """
    from scipy.sparse import coo_matrix  # as above

    keep = source != target
    rows = np.concatenate([source[keep], target[keep]])
    cols = np.concatenate([target[keep], source[keep]])
    csr = coo_matrix(
        # Sums over duplicates may wrap: only the pattern is used.
        (np.ones(len(rows), np.int8), (rows, cols)),
        shape=(num_nodes, num_nodes),
    ).tocsr()
    csr.sort_indices()
    return csr.indptr.astype(np.int64), csr.indices.astype(np.int64)


def edge_homophily(graph: TextGraph) -> float:
    """Return the share of edges in 0..1 that connect nodes of the same label; 0 without edges."""
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    same = graph.labels[source] == graph.labels[graph.indices]
    return float(same.mean()) if len(same) else 0.0


def _reader() -> Any:
    """Return the module that applies the rules of import, loaded by name as plugins are."""
    return import_module("dance_flwr.data.imports.importer")


def check_texts(texts: Sequence[str]) -> None:
    """Check that texts are strings that UTF-8 can store: no half characters."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"texts: expected strings, found {text!r} for node {number}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"texts: expected text, found half a character at {error.start} of node {number}; "
                'store text.encode("utf-8", "replace").decode()'
            ) from None
