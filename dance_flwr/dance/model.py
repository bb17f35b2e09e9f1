"""omega = (theta, phi): the backbone and the parameters of selection, fusion and prediction."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dance_flwr.nn.dropout import dropout as drop
from dance_flwr.nn.model import ModelShape, PlainModel


class DanceModel(PlainModel):
    """omega: the backbone, selection, fusion and heads.

    W_q, W_k (eq:neighbor_score), W_s (eq:chunk_similarity), gamma (eq:hier_context), W_g, W_t, w
    and the layer norm (eq:fused_embed), and the heads Dec, Dec_g, Dec_t (eq:fusion_train_loss).
    """

    def __init__(
        self,
        shape: ModelShape,
        backbone: str,
        dropout: float,
        *,
        attention_dim: int,
        label_evidence: bool = False,
    ) -> None:
        super().__init__(shape, backbone, dropout)
        d, h = shape.text_dim, shape.hidden_dim
        self.query = nn.Linear(h, attention_dim, bias=False)
        self.key = nn.Linear(d, attention_dim, bias=False)
        self.chunk_query = nn.Linear(h, d, bias=False)
        self.hop_logits = nn.Parameter(torch.zeros(3))
        self.fuse_graph = nn.Linear(h, d, bias=False)
        self.fuse_text = nn.Linear(d, d, bias=False)
        self.fuse_gate = nn.Linear(h + d, 1, bias=False)
        # x_v starts as LN of text and graph in the coordinates of the text: the backbone reads both
        # t_u and x_v, and a random W_t would hide that they stand for the same words. sqrt(d) gives
        # t, of norm at most 1, the scale of W_g g.
        nn.init.eye_(self.fuse_text.weight)
        self.fuse_text.weight.data.mul_(d**0.5)
        self.norm = nn.LayerNorm(d)
        self.head_fused = nn.Linear(d, shape.classes)
        self.head_text = nn.Linear(d, shape.classes)
        self.head_labels: nn.Linear | None = None
        if label_evidence:
            self.head_labels = nn.Linear(2 * shape.classes, shape.classes, bias=False)
            nn.init.zeros_(self.head_labels.weight)

    def fuse(
        self, hidden: Float[Tensor, "m h"], text: Float[Tensor, "m d"]
    ) -> Float[Tensor, "m d"]:
        """eq:fused_embed: x = LN(W_g g + sigma(w^T [g || t]) W_t t); [m, h], [m, d] -> [m, d]."""
        gate = torch.sigmoid(self.fuse_gate(torch.cat([hidden, text], dim=1)))
        return self.norm(self.fuse_graph(hidden) + gate * self.fuse_text(text))  # type: ignore[no-any-return]

    def fused_logits(
        self, fused: Float[Tensor, "m d"], labels: Float[Tensor, "m C2"] | None = None
    ) -> Float[Tensor, "m C"]:
        """O = Dec(x) + W_y [y_1 || y_2]; [m, d], [m, 2C] -> [m, C].

        Without label evidence O = Dec(x), as in the paper.
        """
        logits = self.head_fused(drop(fused, self.dropout, self.training))
        if self.head_labels is not None and labels is not None:
            logits = logits + self.head_labels(labels)
        return logits  # type: ignore[no-any-return]

    def text_logits(self, text: Float[Tensor, "m d"]) -> Float[Tensor, "m C"]:
        """o^t = Dec_t(t); [m, d] -> [m, C]."""
        return self.head_text(drop(text, self.dropout, self.training))  # type: ignore[no-any-return]
