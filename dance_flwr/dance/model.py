"""omega = (theta, phi): the graph backbone and the parameters of selection, fusion and prediction."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, GraphConv


@dataclass(frozen=True)
class ModelShape:
    """Widths: d of the text encoder, h of the backbone, d_a of the attention, C classes."""

    text_dim: int
    hidden_dim: int
    attention_dim: int
    classes: int


@dataclass(frozen=True)
class BackboneSpec:
    """A layer type and the operator (`propagation.operator`) that it is given."""

    layer: Callable[[int, int], nn.Module]
    operator: str


# GraphConv over a row-normalised operator is GraphSAGE-mean that also reads the weights of a reconstructed graph.
BACKBONES: dict[str, BackboneSpec] = {
    "gcn": BackboneSpec(lambda width_in, width_out: GCNConv(width_in, width_out, normalize=False), "gcn"),
    "sage": BackboneSpec(lambda width_in, width_out: GraphConv(width_in, width_out, aggr="add"), "mean"),
}


class Backbone(nn.Module):
    """theta: two propagation layers, g = P(relu(P(x W_1)) W_2); [n, d] -> [n, h].

    Inputs are layer-normalised without parameters, since text embeddings t_u (norm at most 1) and fused features x_v
    (norm near sqrt(d)) go through the same weights.
    """

    def __init__(self, name: str, text_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        spec = BACKBONES[name]
        self.operator = spec.operator
        self.dropout = dropout
        self.first = spec.layer(text_dim, hidden_dim)
        self.second = spec.layer(hidden_dim, hidden_dim)

    def forward(self, features: Tensor, operator: Tensor) -> Tensor:
        """Return g, [n, h]."""
        hidden = F.layer_norm(features, features.shape[-1:])
        hidden = F.dropout(hidden, self.dropout, self.training)
        hidden = F.relu(self.first(hidden, operator))
        return self.second(F.dropout(hidden, self.dropout, self.training), operator)  # type: ignore[no-any-return]


class PlainModel(nn.Module):
    """Backbone and linear head on the original graph: what FedAvg trains on full data."""

    def __init__(self, shape: ModelShape, backbone: str, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.backbone = Backbone(backbone, shape.text_dim, shape.hidden_dim, dropout)
        self.head_graph = nn.Linear(shape.hidden_dim, shape.classes)

    def graph_logits(self, hidden: Tensor) -> Tensor:
        """o^g = Dec_g(g); [n, h] -> [n, C]."""
        return self.head_graph(hidden)  # type: ignore[no-any-return]


class DanceModel(PlainModel):
    """omega: W_q, W_k (eq:neighbor_score), W_s (eq:chunk_similarity), gamma (eq:hier_context), W_g, W_t, w and the
    layer norm (eq:fused_embed), and the heads Dec, Dec_g, Dec_t (eq:fusion_train_loss).
    """

    def __init__(self, shape: ModelShape, backbone: str, dropout: float) -> None:
        super().__init__(shape, backbone, dropout)
        d, h = shape.text_dim, shape.hidden_dim
        self.query = nn.Linear(h, shape.attention_dim, bias=False)
        self.key = nn.Linear(d, shape.attention_dim, bias=False)
        self.chunk_query = nn.Linear(h, d, bias=False)
        self.hop_logits = nn.Parameter(torch.zeros(3))
        self.fuse_graph = nn.Linear(h, d, bias=False)
        self.fuse_text = nn.Linear(d, d, bias=False)
        self.fuse_gate = nn.Linear(h + d, 1, bias=False)
        self.norm = nn.LayerNorm(d)
        self.head_fused = nn.Linear(d, shape.classes)
        self.head_text = nn.Linear(d, shape.classes)

    def fuse(self, hidden: Tensor, text: Tensor) -> Tensor:
        """eq:fused_embed: x = LN(W_g g + sigma(w^T [g || t]) W_t t); [m, h], [m, d] -> [m, d]."""
        gate = torch.sigmoid(self.fuse_gate(torch.cat([hidden, text], dim=1)))
        return self.norm(self.fuse_graph(hidden) + gate * self.fuse_text(text))  # type: ignore[no-any-return]

    def fused_logits(self, fused: Tensor) -> Tensor:
        """O = Dec(x); [m, d] -> [m, C]."""
        return self.head_fused(F.dropout(fused, self.dropout, self.training))  # type: ignore[no-any-return]

    def text_logits(self, text: Tensor) -> Tensor:
        """o^t = Dec_t(t); [m, d] -> [m, C]."""
        return self.head_text(F.dropout(text, self.dropout, self.training))  # type: ignore[no-any-return]
