"""`Core`: a condensed graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from dance_flwr.api.node_evidence import Evidence
from dance_flwr.api.notebook import table_html
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import counted

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Core:
    """A condensed graph: K nodes of a larger one, what they read of it, and new edges among them.

    Attributes
    ----------
    nodes : [K] int64, places in the graph, ascending; ids : [K] strings
    class_names : of the labels
    labels : [K] int64: training labels, and pseudo-labels of the others
    known : [K] bool, whether a label is a training label
    probabilities : [K, C] what the model says of each node: soft labels
    difficulty : [K] u_v = entropy of the model's prediction, in nats
    features : [K, d] float32, the condensed text of each node in the encoder's space: chunks of
        itself and its neighbours, weighed by pi, and their context
    edge_index : [2, E] int64, both directions; edge_weight : [E] float32, above 0
    evidence : of each node: neighbours with gates, spans with weights
    counts : totals: condensed nodes, their evidence neighbours, chunks and tokens
    num_nodes, num_edges, num_tokens : of the whole graph; edges undirected, tokens of the encoder
    config : the configuration
    """

    nodes: Tensor
    ids: tuple[str, ...]
    class_names: tuple[str, ...]
    labels: Tensor
    known: Tensor
    probabilities: Tensor
    difficulty: Tensor
    features: Tensor
    edge_index: Tensor
    edge_weight: Tensor
    evidence: Evidence
    counts: Mapping[str, int]
    num_nodes: int
    num_edges: int
    num_tokens: int
    config: RunConfig

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def coverage(self) -> dict[str, float]:
        """What the core holds of the graph, as ratios of nodes, edges and tokens.

        Tokens count once per node that reads them, so that their ratio may pass 1.
        """
        return {
            "ratio_of_nodes": len(self) / self.num_nodes,
            "ratio_of_edges": self.edge_index.size(1) / 2 / max(self.num_edges, 1),
            "ratio_of_tokens": self.counts["evidence-tokens"] / max(self.num_tokens, 1),
        }

    def to_pyg(self) -> "Data":
        """Return the core as a torch-geometric `Data`.

        `x` are the condensed texts, in the space of `encode(graph)`: a model trained on one reads
        the other. It has `edge_index`, `edge_weight`, `y`, `train_mask` (nodes with a training
        label), `n_id` (places in the graph), `soft_labels`, and the lists `ids` and `class_names`.
        """
        from torch_geometric.data import Data

        return Data(
            x=self.features,
            edge_index=self.edge_index,
            edge_weight=self.edge_weight,
            y=self.labels,
            train_mask=self.known,
            n_id=self.nodes,
            soft_labels=self.probabilities,
            ids=list(self.ids),
            class_names=list(self.class_names),
        )

    def __repr__(self) -> str:
        edges = self.edge_index.size(1) // 2
        return (
            f"Core({len(self)} of {counted(self.num_nodes, 'node')}, {counted(edges, 'edge')}, "
            f"{int(self.known.sum())} training labels)"
        )

    def _repr_html_(self) -> str:
        caption = (
            f"Core of {len(self):,} of {counted(self.num_nodes, 'node')} "
            f"({100 * len(self) / self.num_nodes:.1f} %), "
            f"{counted(self.edge_index.size(1) // 2, 'edge')}, "
            f"{counted(self.counts['evidence-tokens'], 'token')} of evidence"
        )
        rows = [
            (name, int((self.labels == number).sum()), int(self.known[self.labels == number].sum()))
            for number, name in enumerate(self.class_names)
        ]
        return table_html(caption, rows, ("class", "nodes", "with a training label"))
