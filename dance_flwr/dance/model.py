"""omega = (theta, phi): the backbone and the parameters of selection, fusion and prediction."""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.nn.backbone import LAYER_NORM_EPS, normalise
from dance_flwr.nn.backbone import dropout as drop
from dance_flwr.nn.model import ModelShape, PlainModel


class DanceModel(PlainModel):
    """omega: the backbone, selection, fusion and heads, with texts read at the backbone's width.

    Every text passes the backbone's own linear map U, [d, w] (`Backbone.project`). It takes the
    place of W_k (eq:neighbor_score), of W_t (eq:fused_embed) and of one factor of W_s
    (eq:chunk_similarity): W_k = U^T, W_s = U A_s, and x_v has w entries. So phi costs O(h w + w C)
    weights instead of the paper's O(d^2), and the condensed graph starts after the map. Beside U:
    A_q, A_s, gamma (eq:hier_context), W_g, w and the layer norm (eq:fused_embed), and the heads
    Dec, Dec_g, Dec_t (eq:fusion_train_loss). `PaperModel` has the paper's matrices.

    Parameters
    ----------
    attention_dim : d_a, width of <W_q g, W_k t>; only the paper's matrices have one
    """

    def __init__(
        self,
        shape: ModelShape,
        backbone: str,
        dropout: float,
        *,
        attention_dim: int = 0,
        label_evidence: bool = False,
    ) -> None:
        super().__init__(shape, backbone, dropout)
        width = self._add_maps(shape, attention_dim)
        # gamma is their softmax, which keeps it on the simplex of eq:hier_context; equal at first.
        self.hop_logits = nn.Parameter(torch.zeros(3))
        # W_g and w have no bias in eq:fused_embed.
        self.fuse_graph = nn.Linear(shape.hidden_dim, width, bias=False)
        self.fuse_gate = nn.Linear(shape.hidden_dim + width, 1, bias=False)
        self.norm = nn.LayerNorm(width)
        self.head_fused = nn.Linear(width, shape.classes)
        self.head_text = nn.Linear(width, shape.classes)
        self.head_labels: nn.Linear | None = None
        if label_evidence:
            self.head_labels = nn.Linear(2 * shape.classes, shape.classes, bias=False)
            # Why zero (decision 7): training starts from the prediction without label evidence.
            nn.init.zeros_(self.head_labels.weight)

    def _add_maps(self, shape: ModelShape, attention_dim: int) -> int:
        # Why the width of U (decision 16): W_k, W_s and W_t made an upload eight times that of
        # FedAvg, and U is trained by every term of the loss.
        width = int(self.backbone.text_weight().size(0))
        self.query = nn.Linear(shape.hidden_dim, width, bias=False)
        self.chunk_query = nn.Linear(shape.hidden_dim, width, bias=False)
        return width

    def neighbour_queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m d"]:
        """q_v with s_{v,u} = <q_v, t_u>: U A_q g_v / sqrt(w); [m, h] -> [m, d]."""
        return self._read_by(self.query(hidden))

    def chunk_queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m d"]:
        """q_v with a_{v,(u,r)} = <q_v, e_{u,r}>: U A_s g_v / sqrt(w); [m, h] -> [m, d]."""
        return self._read_by(self.chunk_query(hidden))

    def queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m 2 d"]:
        """`neighbour_queries` and `chunk_queries`, in one product; [m, h] -> [m, 2, d]."""
        both = F.linear(hidden, torch.cat([self.query.weight, self.chunk_query.weight]))
        return self._read_by(both.view(-1, both.size(1) // 2)).view(-1, 2, self.text_dim)

    def _read_by(self, query: Float[Tensor, "m w"]) -> Float[Tensor, "m d"]:
        # The scale of eq:neighbor_score, with the width of U for that of the texts.
        return (query / sqrt(query.size(1))) @ self.backbone.text_weight()  # type: ignore[no-any-return]

    def read(self, text: Float[Tensor, "*m d"]) -> Float[Tensor, "*m w"]:
        """U = U^T LN(t); [..., d] -> [..., w]."""
        # Why normalised (decision 4): the backbone reads LN(t) on the original graph, through the
        # same U.
        return self.backbone.project(normalise(text))  # type: ignore[no-any-return]

    def fuse(
        self, hidden: Float[Tensor, "m h"], text: Float[Tensor, "m d"]
    ) -> Float[Tensor, "m w"]:
        """eq:fused_embed: x = LN(W_g g + `gated_text`(g, `read(t)`)); [m, h], [m, d] -> [m, w]."""
        return self.fuse_read(hidden, self.read(text))

    def fuse_read(
        self, hidden: Float[Tensor, "m h"], read: Float[Tensor, "m r"]
    ) -> Float[Tensor, "m w"]:
        """`fuse` of texts that have been read; [m, h], [m, r] -> [m, w]."""
        return self.norm(self.fuse_graph(hidden) + self.gated_text(hidden, read))  # type: ignore[no-any-return]

    def gated_text(
        self, hidden: Float[Tensor, "m h"], read: Float[Tensor, "m r"]
    ) -> Float[Tensor, "m w"]:
        """sigma(w^T [g || u]) `fusion_text`(u); [m, h], [m, r] -> [m, w]."""
        return self.text_gate(hidden, read) * self.fusion_text(read)

    def text_gate(
        self, hidden: Float[Tensor, "m h"], read: Float[Tensor, "m r"]
    ) -> Float[Tensor, "m 1"]:
        """sigma(w^T [g || u]); [m, h], [m, r] -> [m, 1]."""
        return torch.sigmoid(self.fuse_gate(torch.cat([hidden, read], dim=1)))

    def fusion_text(self, read: Float[Tensor, "*m r"]) -> Float[Tensor, "*m w"]:
        """Return u itself: U has taken the place of W_t."""
        return read

    def read_share(
        self, share: Float[Tensor, "E d"], whole: Float[Tensor, "E d"]
    ) -> Float[Tensor, "E w"]:
        """Return the part of `read(whole)` that a summand of `whole` makes; [E, d] -> [E, w].

        The shares of all summands add up to `read(whole)`: LN is linear once its scale is known.
        """
        whole, centred = (rows - rows.mean(dim=1, keepdim=True) for rows in (whole, share))
        scale = (whole.square().mean(dim=1, keepdim=True) + LAYER_NORM_EPS).sqrt()
        return self.backbone.project(centred / scale)  # type: ignore[no-any-return]

    def condensed_hidden(
        self, fused: Float[Tensor, "m w"], operator: Tensor
    ) -> Float[Tensor, "m h"]:
        """Return the backbone's output on the graph whose features are x; [m, h].

        Parameters
        ----------
        operator : [m, m] sparse
        """
        backbone = self.backbone
        steps, first = [operator] * backbone.reach, backbone.reach - backbone.hops_left
        return backbone.finish(backbone.spread(backbone.drop(fused), steps[:first]), steps[first:])  # type: ignore[no-any-return]

    def fused_logits(
        self, fused: Float[Tensor, "m w"], labels: Float[Tensor, "m C2"] | None = None
    ) -> Float[Tensor, "m C"]:
        """O = Dec(x) + W_y [y_1 || y_2]; [m, w], [m, 2C] -> [m, C].

        Without label evidence O = Dec(x), as in the paper.
        """
        logits = self.head_fused(drop(fused, self.dropout, self.training))
        if self.head_labels is not None and labels is not None:
            logits = logits + self.head_labels(labels)
        return self.with_prior(logits)

    def text_logits(self, read: Float[Tensor, "m r"]) -> Float[Tensor, "m C"]:
        """o^t = Dec_t(u) of texts that have been read; [m, r] -> [m, C]."""
        return self.with_prior(self.head_text(drop(read, self.dropout, self.training)))


class PaperModel(DanceModel):
    """omega with the paper's matrices, which read texts at their own width d.

    W_q, W_k (eq:neighbor_score), W_s (eq:chunk_similarity), W_g, W_t, w (eq:fused_embed); x_v has d
    entries, and the backbone reads it as it reads t_u.
    """

    def _add_maps(self, shape: ModelShape, attention_dim: int) -> int:
        d, h = shape.text_dim, shape.hidden_dim
        self.query = nn.Linear(h, attention_dim, bias=False)
        self.key = nn.Linear(d, attention_dim, bias=False)
        self.chunk_query = nn.Linear(h, d, bias=False)
        self.fuse_text = nn.Linear(d, d, bias=False)
        # Why (decision 7): x_v starts as LN of text and graph in the coordinates of the text: the
        # backbone reads both t_u and x_v, and a random W_t would hide that they stand for the same
        # words. sqrt(d) gives t, of norm at most 1, the scale of W_g g.
        nn.init.eye_(self.fuse_text.weight)
        self.fuse_text.weight.data.mul_(d**0.5)
        return d

    def neighbour_queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m d"]:
        """W_k^T W_q g_v / sqrt(d); [m, h] -> [m, d]."""
        # sqrt(d) as in eq:neighbor_score, although the inner product has width d_a.
        return self.query(hidden) @ self.key.weight / sqrt(self.key.in_features)  # type: ignore[no-any-return]

    def chunk_queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m d"]:
        """W_s g_v / sqrt(d); [m, h] -> [m, d]."""
        return self.chunk_query(hidden) / sqrt(self.chunk_query.out_features)  # type: ignore[no-any-return]

    def queries(self, hidden: Float[Tensor, "m h"]) -> Float[Tensor, "m 2 d"]:
        """`neighbour_queries` and `chunk_queries`; [m, h] -> [m, 2, d]."""
        return torch.stack([self.neighbour_queries(hidden), self.chunk_queries(hidden)], dim=1)

    def read(self, text: Float[Tensor, "*m d"]) -> Float[Tensor, "*m d"]:
        """Return t itself, which W_t and Dec_t read; [..., d]."""
        return text

    def fusion_text(self, read: Float[Tensor, "*m d"]) -> Float[Tensor, "*m d"]:
        """W_t t; [..., d] -> [..., d]."""
        return self.fuse_text(read)  # type: ignore[no-any-return]

    def read_share(
        self, share: Float[Tensor, "E d"], whole: Float[Tensor, "E d"]
    ) -> Float[Tensor, "E d"]:
        """Return the summand itself, as `read` is the identity; [E, d]."""
        return share

    def condensed_hidden(
        self, fused: Float[Tensor, "m d"], operator: Tensor
    ) -> Float[Tensor, "m h"]:
        """Return the backbone's output on the graph whose features are x; [m, h]."""
        return self.backbone(fused, operator)  # type: ignore[no-any-return]
