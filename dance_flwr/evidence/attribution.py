"""Attribution of the fused view to what was read: class sizes, graph, each text and each label."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.model import DanceModel


class FusedLogits:
    """O = b + prior + Dec(N W_g g) + Dec(N gated text) + W_y [y_1 || y_2], in exact summands.

    N is the linear part of the layer norm: LN(s) = w (s - mean(s)) / sigma(s) + b is linear in s
    once sigma is known, and so is the reading of a text once its own sigma and its gate are. With
    these held at their values the logits are a sum over texts, without any method of attribution
    (the LN rule of Ali et al. 2022, "XAI for Transformers: better explanations through conservative
    propagation"). g itself reads texts: those of the neighbourhood, unselected.

    Parameters
    ----------
    hidden : [m, h] g_v; text : [m, d] the text input of fusion
    """

    def __init__(
        self, model: DanceModel, hidden: Float[Tensor, "m h"], text: Float[Tensor, "m d"]
    ) -> None:
        self.model, self.text = model, text
        read = model.read(text)
        self.gate = model.text_gate(hidden, read)
        self._graph = _centred(model.fuse_graph(hidden))
        self._text = _centred(self.gate * model.fusion_text(read))
        spread = (self._graph + self._text).square().mean(dim=1, keepdim=True)
        self._sigma = (spread + model.norm.eps).sqrt()

    def parts(self, labels: Float[Tensor, "m C2"] | None) -> Float[Tensor, "5 m C"]:
        """Return the summands by `PARTS`; [5, m, C].

        They add up to `fused_logits` without dropout.

        Parameters
        ----------
        labels : [y_1 || y_2], `inference.neighbour_labels`; None = no label evidence
        """
        model = self.model
        graph = self._decoded(self._graph, self._sigma)
        text = self._decoded(self._text, self._sigma)
        constant, zero = model.head_fused(model.norm.bias).expand_as(graph), torch.zeros_like(graph)
        prior = zero if model.prior is None else model.prior.expand_as(zero)
        of_labels = zero
        if labels is not None and model.head_labels is not None:
            of_labels = model.head_labels(labels)
        return torch.stack([constant, prior, graph, text, of_labels])

    def of_texts(
        self, rows: Int64[Tensor, "E"], shares: Float[Tensor, "E d"]
    ) -> Float[Tensor, "E C"]:
        """Return what summands of the texts add to the part "text"; [E, C].

        Parameters
        ----------
        rows : [E] int64 rows that the summands belong to
        shares : [E, d] the summands; those of a row that add up to its text explain all of it
        """
        read = self.model.read_share(shares, self.text[rows])
        gated = self.gate[rows] * self.model.fusion_text(read)
        return self._decoded(_centred(gated), self._sigma[rows])

    def _decoded(
        self, centred: Float[Tensor, "_ w"], sigma: Float[Tensor, "_ 1"]
    ) -> Float[Tensor, "_ C"]:
        return F.linear(centred / sigma * self.model.norm.weight, self.model.head_fused.weight)


def _centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(dim=1, keepdim=True)


def label_logits(
    weight: Float[Tensor, "C C2"] | None,
    hops: Int64[Tensor, "E"],
    labels: Int64[Tensor, "E"],
    gates: Float[Tensor, "E"],
    classes: int,
) -> Float[Tensor, "E C"]:
    """Return alpha^(l) W_y[:, (l, y)] of labelled neighbours, else 0; [E, C].

    Those of the neighbours of a node add up to its part "labels".

    Parameters
    ----------
    weight : W_y; None = no label evidence
    hops, labels : [E] int64, hop l and training label y or -1
    gates : [E] alpha^(l)
    classes : C

    Examples
    --------
    >>> weight = torch.tensor([[0.5, -1.0, 2.0, 0.0], [0.0, 1.0, 0.0, 0.0]])  # hop 1, then hop 2
    >>> hops, labels = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, -1, 0])
    >>> label_logits(weight, hops, labels, torch.full((4,), 0.5), 2)[:, 0]
    tensor([ 0.0000, -0.5000,  0.0000,  1.0000])
    """
    # Hop 0 is the node itself, whose label is never read (decision 7).
    counts = (hops > 0) & (labels >= 0)
    if weight is None:
        return gates.new_zeros(len(gates), classes)
    columns = ((hops - 1) * classes + labels).clamp(min=0)
    return torch.where(counts, gates, 0.0)[:, None] * weight.T[columns]
