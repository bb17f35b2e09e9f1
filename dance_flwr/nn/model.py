"""The plain model: a graph backbone and a linear head."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.config.plugins import BACKBONES


@dataclass(frozen=True)
class ModelShape:
    """Widths: d of the text encoder, h of the backbone, C classes."""

    text_dim: int
    hidden_dim: int
    classes: int


class PlainModel(nn.Module):
    """A backbone and a linear head on the original graph: the model of FedAvg on full data.

    Parameters
    ----------
    reads_labels : whether nodes have a second input, a label: its map V is added to that of the
        texts, before the first step over edges, as if one-hot columns followed the normalised
        texts. V starts at zero; a model without it has neither its weights nor its operations

    Attributes
    ----------
    prior : [C] tau log pi of the client at hand, no part of the state; None = not read
    """

    def __init__(
        self, shape: ModelShape, backbone: str, dropout: float, reads_labels: bool = False
    ) -> None:
        super().__init__()
        self.dropout, self.text_dim = dropout, shape.text_dim
        self.backbone = BACKBONES.get(backbone)(shape.text_dim, shape.hidden_dim, dropout)
        self.head_graph = nn.Linear(shape.hidden_dim, shape.classes)
        # Why zeros: at first the model predicts as one that reads no labels.
        self.label_weight: nn.Parameter | None = None  # V^T, [w, C]
        # Why no buffer: the prior is the client's own, and a state is what clients upload.
        self.prior: Tensor | None = None
        if reads_labels:
            width = self.backbone.text_weight().size(0)
            self.label_weight = nn.Parameter(torch.zeros(width, shape.classes))

    def logits(
        self,
        features: Float[Tensor, "n d"],
        operator: Float[Tensor, "n n"],
        labels: Float[Tensor, "n C"] | None = None,
    ) -> Float[Tensor, "n C"]:
        """o^g = Dec_g(f(x^ U + Y V, P)); without `labels` Y is 0.

        Parameters
        ----------
        labels : Y, one-hot rows of the labels that the model may read, 0 elsewhere
        """
        added = None
        if self.label_weight is not None and labels is not None:
            added = F.linear(labels, self.label_weight)
        return self.graph_logits(self.backbone(features, operator, added))

    def logits_from(
        self, inputs: Float[Tensor, "n i"], operator: Float[Tensor, "n n"]
    ) -> Float[Tensor, "n C"]:
        """o^g from `Backbone.inputs`, which a client computes once; without labels as an input.

        In training, dropout follows the first steps over edges instead of preceding them.
        """
        # Why (decision 16): a step over edges that depends on no parameter is taken once.
        hidden = self.backbone.start(self.backbone.drop(inputs.float()))
        rest = [operator] * self.backbone.hops_left
        return self.graph_logits(self.backbone.finish(hidden, rest))

    def graph_logits(self, hidden: Float[Tensor, "n h"]) -> Float[Tensor, "n C"]:
        """o^g = Dec_g(g); [n, h] -> [n, C]."""
        return self.with_prior(self.head_graph(hidden))

    def with_prior(self, logits: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return o + tau log pi, pi the class shares of the client that is read; [n, C].

        So the parameters learn what a text says beyond them (Menon et al. 2021; Zhang et al. 2022
        for clients of skewed labels).
        """
        return logits if self.prior is None else logits + self.prior


def load_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state as `load_state_dict` does, with its RuntimeError for other names or shapes."""
    old = model.state_dict()
    if {name: t.shape for name, t in old.items()} == {name: t.shape for name, t in state.items()}:
        # Why in one call (decision 31): one by one, each tensor is a kernel on a GPU.
        torch._foreach_copy_(list(old.values()), [state[name] for name in old])
    else:
        model.load_state_dict(state)  # names what differs
