"""The losses of a client on its condensed graph, the nodes of the plain term, and feature noise."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.selection import Padded


@dataclass(frozen=True)
class Labelled:
    """The labelled ones among m nodes.

    Attributes
    ----------
    labels : [s] int64
    rows : [s] int64, which of the m nodes they are; None = all of them, in order
    weights : [s] of their cross-entropies, above 0; None = all 1

    Examples
    --------
    >>> Labelled.among(torch.tensor([2, -1, 0]))
    Labelled(labels=tensor([2, 0]), rows=tensor([0, 2]), weights=None)
    """

    labels: Int64[Tensor, "s"]
    rows: Int64[Tensor, "s"] | None
    weights: Float[Tensor, "s"] | None = None

    @classmethod
    def among(
        cls,
        labels: Int64[Tensor, "m"],
        classes: Float[Tensor, "C"] | None = None,
        mass: Float[Tensor, "m"] | None = None,
    ) -> "Labelled":
        """Return the nodes whose label is not -1.

        Parameters
        ----------
        classes : weights of the classes; None = all 1
        mass : number of nodes that each of the m nodes stands for; None = 1 each
        """
        rows = torch.nonzero(labels >= 0).flatten()
        weights = None if mass is None else mass[rows]
        if classes is not None:
            of_class = classes[labels[rows]]
            weights = of_class if weights is None else weights * of_class
        return cls(labels[rows], None if len(rows) == len(labels) else rows, weights)

    @classmethod
    def masked(
        cls,
        labels: Int64[Tensor, "m"],
        classes: Float[Tensor, "C"] | None = None,
        mass: Float[Tensor, "m"] | None = None,
    ) -> "Labelled":
        """Return all m nodes, with weight 0 where the label is -1: a size without a value.

        The cross-entropy is that of `among`, if a node has a label.
        """
        weights = (labels >= 0).float() if mass is None else (labels >= 0) * mass
        labels = labels.clamp(min=0)
        return cls(labels, None, weights if classes is None else weights * classes[labels])

    def cross_entropy(self, logits: Float[Tensor, "m C"]) -> Float[Tensor, ""]:
        """CE = sum w_v CE(o_v, y_v) / sum w_v over the labelled nodes, 0 without any; a scalar."""
        if not len(self.labels):
            return logits.new_zeros(())
        logits = logits if self.rows is None else logits[self.rows]
        if self.weights is None:
            return F.cross_entropy(logits, self.labels)
        each = F.cross_entropy(logits, self.labels, reduction="none")
        return (self.weights * each).sum() / self.weights.sum()


@dataclass(frozen=True)
class Logits:
    """Logits of the K core nodes by head, [K, C] each.

    Attributes
    ----------
    graph : o^g = Dec_g(g_v) on the original graph
    text : o^t = Dec_t of the condensed text
    fused : Dec(x_v), with label evidence
    core : Dec_g of the backbone on the condensed graph
    """

    graph: Float[Tensor, "K C"]
    text: Float[Tensor, "K C"]
    fused: Float[Tensor, "K C"]
    core: Float[Tensor, "K C"]


def condensed_loss(
    logits: Logits,
    labelled: Labelled,
    settings: DanceConfig,
    shares: Float[Tensor, "K"] | None = None,
) -> Float[Tensor, ""]:
    """eq:fusion_train_loss + CE of the condensed graph; a scalar.

    L_m = mean CE(Dec(x_v), y_v) + lambda_align mean KL(softmax(o^g) || softmax(o^t)).
    The cross-entropies are weighted means over labelled core nodes, the divergence is a mean over
    all core nodes; without a labelled core node only the divergence remains.

    Parameters
    ----------
    shares : of each row in that mean; None = all the same
    """
    # KL(softmax(o^g) || softmax(o^t)), the divergence that the paper names as its example of D.
    text, graph = F.log_softmax(logits.text, dim=1), F.log_softmax(logits.graph, dim=1)
    if shares is None:
        divergence = F.kl_div(text, graph, reduction="sum", log_target=True)
        loss = settings.align_weight * divergence / max(1, len(graph))
    else:
        divergence = F.kl_div(text, graph, reduction="none", log_target=True).sum(1)
        loss = settings.align_weight * (divergence @ shares)
    # Why the last term (decision 19): the paper trains on the condensed graph, but prints no loss
    # for it.
    return loss + labelled.cross_entropy(logits.fused) + labelled.cross_entropy(logits.core)


def supervised_nodes(
    evidence: Padded, labels: Int64[Tensor, "n"], settings: DanceConfig
) -> Int64[Tensor, "s"]:
    """Return the labelled nodes of the plain term, [s] int64.

    They are the core and, with `evidence_supervision`, its selected neighbours. The paper trains on
    the core alone.

    Parameters
    ----------
    labels : [n] int64 training labels, -1 where unknown
    """
    nodes = evidence.nodes
    if settings.evidence_supervision:
        # Why neighbours too (decision 7): their texts are read in this round anyway, under the same
        # budgets.
        nodes = torch.unique(torch.cat([nodes, evidence.neighbours]))
    return nodes[labels[nodes] >= 0]


def laplace_like(features: Tensor, scale: float) -> Tensor | None:
    """Return Laplace(0, b) noise, [K, d], from torch's global generator; None if b = 0.

    Appendix "Differential Privacy Implementation Details": the paper's study of robustness, not a
    guarantee. Condensed features never leave a client, and noise on them does not bound the update,
    which does; `dance_flwr.federation.privacy.dp` bounds updates.
    """
    if not scale:
        return None
    noise: Tensor = torch.distributions.Laplace(0.0, scale).sample(features.shape).to(features)
    return noise


def perturb(features: Tensor, noise: Tensor | None) -> Tensor:
    """X~ = sqrt(d) * normalise(X + noise), rows of l2 norm sqrt(d); [K, d]. X without noise.

    Examples
    --------
    >>> perturb(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([[2.0, 0.0, 0.0, 4.0]]))
    tensor([[1.2000, 0.0000, 0.0000, 1.6000]])
    """
    if noise is None:
        return features
    unit: Tensor = F.normalize(features + noise, dim=1)
    # Why sqrt(d) where the paper has 1 (decision 4): rows of X are the output of a layer norm and
    # have this norm at inference, where no noise is added.
    return unit * float(features.size(1) ** 0.5)
