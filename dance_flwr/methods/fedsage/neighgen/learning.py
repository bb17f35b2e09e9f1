"""The generator learns: first with its encoder on the client's own hidden nodes, then fGen alone,
with the others'.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.methods.fedsage.config import FedSageConfig
from dance_flwr.methods.fedsage.neighgen.impair import Impaired
from dance_flwr.methods.fedsage.neighgen.losses import feature_loss
from dance_flwr.methods.fedsage.neighgen.mended_graph import chosen, mended_operator
from dance_flwr.methods.fedsage.neighgen.networks import (
    Counter,
    Encoder,
    Maker,
    Widths,
    noisy,
    opened,
    whole_counts,
)
from dance_flwr.nn.model import PlainModel

State = dict[str, Tensor]
MAKER = "maker/"
_FIRST, _SECOND, _STEP = "first/", "second/", "step"  # Adam's moments and number of steps


@dataclass(frozen=True)
class Lesson:
    """What a generator learns of.

    Attributes
    ----------
    impaired : m nodes are left; features : [n, F] of all; labels : [m] int64 training labels, -1
        elsewhere
    """

    impaired: Impaired
    features: Tensor
    labels: Tensor


class NeighGen(nn.Module):
    """Encoder, dGen and fGen, and the classifier whose loss on mended graphs they are trained by."""

    def __init__(self, widths: Widths, judge: PlainModel) -> None:
        super().__init__()
        self.encoder, self.counter = Encoder(widths), Counter(widths)
        self.maker, self.judge = Maker(widths, judge.dropout), judge


def learn_alone(model: NeighGen, lesson: Lesson, config: FedSageConfig) -> None:
    """Minimise a L_d + b L_f + c L_c; L_d = mean_v SmoothL1(m'_v, m_v), for L_f and L_c see
    `maker_loss`.

    Counts are rounded before nodes are made, so that L_d alone trains dGen.
    """
    optimizer = _adam(model, config)
    own, graph = lesson.features[lesson.impaired.nodes], lesson.impaired.operator("gcn")
    model.train()
    for _ in range(config.steps):
        optimizer.zero_grad()
        latents = model.encoder(own, graph)
        missing = model.counter(latents)
        loss = maker_loss(
            model.maker, model.judge, lesson, latents, whole_counts(missing, config.most), config
        )
        if len(missing):
            loss = loss + config.count_weight * F.smooth_l1_loss(missing, lesson.impaired.missing)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()


def sampled(counts: Tensor, batch: int) -> Tensor:
    """Return at most `batch` of the nodes that get neighbours, at random; [m] int64 -> [b] int64."""
    nodes = torch.nonzero(counts).flatten()
    return nodes[torch.randperm(len(nodes)).to(nodes.device)[:batch]]


def maker_loss(
    maker: Maker,
    judge: PlainModel,
    lesson: Lesson,
    latents: Tensor,
    counts: Tensor,
    config: FedSageConfig,
) -> Tensor:
    """B L_f + c L_c, of a sample of the nodes that get neighbours.

    L_f = mean_v (1/m_v) sum_{p < c_v} min_u ||x'_vp - x_u||^2 over all m nodes, estimated by the
    sample; L_c = the classifier's cross-entropy of the training nodes on the impaired graph, mended
    at the sample.

    Parameters
    ----------
    latents : z, [m, latent]; counts : c, [m] int64
    """
    rows = sampled(counts, config.batch)
    made = maker(noisy(latents[rows]))
    share = int((counts > 0).sum()) / max(len(counts), 1)
    near = feature_loss(made, counts[rows], lesson.impaired.lost[rows], lesson.features)
    added = chosen(rows, made, counts[rows])
    here, known = lesson.impaired, lesson.labels >= 0
    loss = config.feature_weight * share * near
    if not config.class_weight or not bool(known.any()):
        return loss
    graph = mended_operator(
        judge.backbone.operator, here.rows, here.cols, added.owners, len(here.nodes)
    )
    hidden = judge.backbone(torch.cat([lesson.features[here.nodes], added.features]), graph)
    logits = judge.graph_logits(hidden)[: len(here.nodes)]
    return loss + config.class_weight * F.cross_entropy(logits[known], lesson.labels[known])


def learn_step(
    state: State,
    judge: PlainModel,
    lesson: Lesson,
    others: Mapping[str, Tensor],
    config: FedSageConfig,
) -> State:
    """One Adam step of fGen alone by the gradient of `maker_loss` plus those of other clients.

    Parameters
    ----------
    state : "latents" [m, latent] and "counts" [m] of the nodes, which no longer change, fGen's
        parameters, and Adam's moments (none before the first step), as returned; all but the first
        two are overwritten
    judge : the classifier, which is frozen too
    others : by name of a parameter, the gradients of other clients added up; none = of no other
        client

    Returns
    -------
    the state after the step
    """
    maker = opened(part(state, MAKER), Widths.of(lesson.features.size(1), config), judge.dropout)
    optimizer = _adam(maker, config)
    for name, parameter in maker.named_parameters():
        if _FIRST + name in state:
            moments = {"exp_avg": state[_FIRST + name], "exp_avg_sq": state[_SECOND + name]}
            optimizer.state[parameter] = {
                "step": state[_STEP].clone(),
                **moments,
            }  # each counts its own steps
    judge.requires_grad_(False).eval()
    maker_loss(maker, judge, lesson, state["latents"], state["counts"], config).backward()  # type: ignore[no-untyped-call]
    for name, parameter in maker.named_parameters():
        if name in others and parameter.grad is not None:
            parameter.grad.add_(others[name])
    optimizer.step()
    after = dict(state)
    for name, parameter in maker.named_parameters():
        moments = optimizer.state[parameter]
        after |= {
            _FIRST + name: moments["exp_avg"],
            _SECOND + name: moments["exp_avg_sq"],
            _STEP: moments["step"],
        }
        after[MAKER + name] = parameter.detach()
    return after


def part(state: Mapping[str, Tensor], prefix: str) -> State:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


def _adam(model: nn.Module, config: FedSageConfig) -> torch.optim.Adam:
    return torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
