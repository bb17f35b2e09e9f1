"""The plain model: a graph backbone and a linear head."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from dance_flwr.config.plugins import BACKBONES


@dataclass(frozen=True)
class ModelShape:
    """Widths: d of the text encoder, h of the backbone, C classes."""

    text_dim: int
    hidden_dim: int
    classes: int


class PlainModel(nn.Module):
    """A backbone and a linear head on the original graph: the model of FedAvg on full data."""

    def __init__(self, shape: ModelShape, backbone: str, dropout: float) -> None:
        super().__init__()
        self.dropout, self.text_dim = dropout, shape.text_dim
        self.backbone = BACKBONES.get(backbone)(shape.text_dim, shape.hidden_dim, dropout)
        self.head_graph = nn.Linear(shape.hidden_dim, shape.classes)

    def graph_logits(self, hidden: Float[Tensor, "n h"]) -> Float[Tensor, "n C"]:
        """o^g = Dec_g(g); [n, h] -> [n, C]."""
        return self.head_graph(hidden)  # type: ignore[no-any-return]
