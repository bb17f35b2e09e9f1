"""The plain model: a graph backbone and a linear head."""

from dataclasses import dataclass

from torch import Tensor, nn

from dance_flwr.config.plugins import BACKBONES


@dataclass(frozen=True)
class ModelShape:
    """Widths: d of the text encoder, h of the backbone, C classes."""

    text_dim: int
    hidden_dim: int
    classes: int


class PlainModel(nn.Module):
    """Backbone and linear head on the original graph: what FedAvg trains on full data."""

    def __init__(self, shape: ModelShape, backbone: str, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.backbone = BACKBONES.get(backbone)(shape.text_dim, shape.hidden_dim, dropout)
        self.head_graph = nn.Linear(shape.hidden_dim, shape.classes)

    def graph_logits(self, hidden: Tensor) -> Tensor:
        """o^g = Dec_g(g); [n, h] -> [n, C]."""
        return self.head_graph(hidden)  # type: ignore[no-any-return]
