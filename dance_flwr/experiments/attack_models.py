"""What a curious server can read from a model that it received: who was trained on, and how a
client's labels lie.

Membership: Yeom et al. 2018 ("Privacy Risk in Machine Learning") call a node a member when the
model's loss on it is small. Deviation: the score here is how much the loss fell from the model
before a round to the model seen after it, so that nodes which are easy for anyone do not count. The
adversary is strong: for every candidate it has the text, the edges and the label, and may run
models on the victim's graph.

Labels: a class that is frequent in the training data pulls its output up. The change of the head's
bias, or the row sums of the change of its weights (the idea of Wainakh et al. 2022, there on
gradients), are compared between clients.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.config.options import Value
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.dance.algorithm import plain_pass
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.evidence import condense_text, select_candidates
from dance_flwr.dance.losses import supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.graph import TEST, VAL
from dance_flwr.data.site import Site
from dance_flwr.nn.model import PlainModel
from dance_flwr.privacy.dp import protect, spent
from dance_flwr.seeding import derive

HEAD = "head_graph"
FALSE_POSITIVES = 0.05
DRAWS = 5  # of the noise; one draw moves a correlation over few clients and classes by chance
OWN, MEAN, OTHER = "own upload", "mean of all clients", "another client's upload"
# Noise: the two budgets of a run, and multipliers far too small for one, to show where the attacks
# begin.
LEVELS: dict[str, dict[str, Value]] = {
    "sigma 0.001": {"privacy.noise-multiplier": 0.001},
    "sigma 0.01": {"privacy.noise-multiplier": 0.01},
    "sigma 0.1": {"privacy.noise-multiplier": 0.1},
    "epsilon 50": {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 50.0},
    "epsilon 8": {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 8.0},
}
_SAME = 1e-9  # a spread below this share of the largest value is rounding, not information

Values = NDArray[np.float64]
State = dict[str, Tensor]


@dataclass(frozen=True)
class Seen:
    """What the server has of each client after a round.

    Attributes
    ----------
    name : of the line; epsilon : of the whole run
    draws : per draw of the noise [M] models, the same one for all clients where it is a mean
    """

    name: str
    draws: Sequence[Sequence[State]]
    epsilon: float | None = None


def observations(
    start: Mapping[str, Tensor],
    uploads: Sequence[State],
    weights: Sequence[float],
    config: RunConfig,
    round_: int,
) -> Iterator[Seen]:
    """Yield all that is compared: uploads and means, as they are and under clipping and noise.

    As a control, every client is also attacked with the upload of the next one, which never saw its
    nodes. Rounding to the grid of secure aggregation, 2^-27 of the bound, is left out.
    """
    yield Seen(OWN, [uploads])
    yield Seen(MEAN, [[mean_state(uploads, weights)] * len(uploads)])
    yield Seen(OTHER, [[*uploads[1:], *uploads[:1]]])
    for dp, name in (("local", OWN), ("distributed", MEAN)):
        for level, values in LEVELS.items():
            private = protected(config, dp, values)
            seeds = [
                derive(config.seed, f"attack-noise {dp} {level} {draw}", round_=round_)
                for draw in range(DRAWS)
            ]
            draws = [_noisy(start, uploads, replace(private, seed=seed), round_) for seed in seeds]
            yield Seen(f"{name}, {dp} {level}", draws, spent(private, private.rounds))


def _noisy(
    start: Mapping[str, Tensor], uploads: Sequence[State], private: RunConfig, round_: int
) -> Sequence[State]:
    """Return what the server has of each client when all of them protect their uploads."""
    norm = private.privacy.clipping_norm
    states: list[State] = [
        protect(upload, start, private, norm=norm, round_=round_, client=client).state
        for client, upload in enumerate(uploads)
    ]
    return (
        states
        if private.privacy.dp == "local"
        else [mean_state(states, [1.0] * len(states))] * len(states)
    )


def protected(config: RunConfig, dp: str, level: Mapping[str, Value]) -> RunConfig:
    """Return the configuration with this differential privacy, its noise from the run's seed."""
    own: dict[str, Value] = {"privacy.dp": dp, "privacy.seeded": True}
    return parse(
        flatten(config) | own | {"privacy.secure-aggregation": dp == "distributed"} | dict(level)
    )


def mean_state(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> State:
    """Return sum_k w_k omega_k / sum_k w_k, with the types of the first."""
    whole = sum(weights)
    return {
        name: sum(
            (
                state[name].double() * (weight / whole)
                for state, weight in zip(states, weights, strict=True)
            ),
            torch.zeros(()),
        ).to(value.dtype)
        for name, value in states[0].items()
    }


def update_norm(state: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """Return the Euclidean length of an update."""
    parts = [(state[name] - start[name].cpu()).double().square().sum() for name in start]
    return float(torch.stack(parts).sum().sqrt())


def plain_losses(model: PlainModel, site: Site) -> Tensor:
    """Return [n] cross-entropies of the plain view on the whole graph without dropout, in nats,
    with gradient.

    0 where the label is unknown.
    """
    model.eval()
    hidden = model.backbone(site.table.nodes, site.graph.operator(model.backbone.operator))
    return F.cross_entropy(
        model.graph_logits(hidden), site.labels, ignore_index=-1, reduction="none"
    )


def node_losses(model: PlainModel, state: Mapping[str, Tensor], site: Site) -> Values:
    """Return [n] losses in nats of the plain view under these parameters; overwrites those of
    `model`.
    """
    model.load_state_dict(state)
    with torch.no_grad():
        return _numpy(plain_losses(model, site))


def loss_fall(
    model: PlainModel, start: Mapping[str, Tensor], seen: Mapping[str, Tensor], site: Site
) -> Values:
    """Return [n] loss under `start` minus loss under `seen`, in nats: large where `seen` was
    trained.
    """
    return node_losses(model, start, site) - node_losses(model, seen, site)


def loss_slope(
    model: PlainModel, start: Mapping[str, Tensor], seen: Mapping[str, Tensor], site: Site
) -> Values:
    """Return [n] the linear part of the fall: minus the derivative of each loss at `start` along
    `seen - start`.

    Noise far larger than the update bends the fall itself; the linear part is the inner product of
    update and gradient, which Gaussian noise only adds to. So this is the harder attack to hide
    from.
    """
    model.load_state_dict(start)
    losses = plain_losses(model, site)
    # J d by two backward passes, as sparse products have no forward mode: g(v) = J^T v is linear in
    # v.
    used = {
        name: value
        for name, value in model.named_parameters()
        if name.startswith(("backbone.", f"{HEAD}."))
    }
    along = [(seen[name] - start[name]).to(value) for name, value in used.items()]
    v = torch.zeros_like(losses, requires_grad=True)
    gradients = torch.autograd.grad(losses, list(used.values()), v, create_graph=True)
    (slope,) = torch.autograd.grad(gradients, v, along)
    return -_numpy(slope)


def supervised(
    model: PlainModel, state: Mapping[str, Tensor], site: Site, config: RunConfig, run: str
) -> Tensor:
    """Return the nodes of the plain term of the round that was just trained from `state`; [s]
    int64.

    The selection of a round follows from the model that came with it and the core that the client
    keeps, so it is made once more. A model without a core was trained on all labelled training
    nodes. Overwrites the parameters of `model`.
    """
    if not isinstance(model, DanceModel):
        return torch.nonzero(site.train_labels >= 0).flatten()
    model.load_state_dict(state)
    kept = RunFolder(site.folder, run).load(site.num_nodes, site.device)
    assert kept.core is not None
    with torch.no_grad():
        around = plain_pass(model, site, site.training_graph)
        if kept.frozen is not None:
            found = kept.frozen.take(kept.core)
        else:
            hops = site.training_graph.hops
            difficulty = around.difficulty()
            found = select_candidates(
                model,
                kept.core,
                around.hidden,
                difficulty,
                hops,
                site.table,
                DanceConfig.of(config),
            )
        evidence = condense_text(
            model, around.hidden[kept.core], found, site.table, DanceConfig.of(config)
        )
    return supervised_nodes(found, evidence, site.train_labels, DanceConfig.of(config))


def held_out(site: Site) -> Tensor:
    """Return the validation and test nodes with a label; [b] int64."""
    return torch.nonzero(
        ((site.split == VAL) | (site.split == TEST)) & (site.labels >= 0)
    ).flatten()


def left_out(site: Site, members: Tensor) -> Tensor:
    """Return the labelled training nodes that are no members in this round; [b] int64."""
    free = site.train_labels >= 0
    free[members] = False
    return torch.nonzero(free).flatten()


@dataclass(frozen=True)
class Membership:
    """How well scores tell members from others.

    Attributes
    ----------
    auc : area under the ROC curve, 0.5 = chance; tpr : share of members found at no more than 5 %
        false positives
    """

    auc: float
    tpr: float


def membership(scores: Values, members: Tensor, others: Tensor) -> Membership | None:
    """Return how well the scores tell the two apart; None where either is empty.

    Parameters
    ----------
    scores : [n], larger = more likely a member; members, others : [a], [b] int64 node numbers
    """
    if not members.numel() or not others.numel():
        return None
    values = np.concatenate([scores[members.cpu().numpy()], scores[others.cpu().numpy()]])
    truth = np.repeat([1, 0], [members.numel(), others.numel()])
    false, true, _ = roc_curve(truth, values)
    return Membership(
        float(roc_auc_score(truth, values)), float(true[false <= FALSE_POSITIVES].max())
    )


def head_change(start: Mapping[str, Tensor], seen: Mapping[str, Tensor], part: str) -> Values:
    """Return [C] how the plain head moved by class: "bias" as it is, "weight" summed over the
    hidden units.
    """
    name = f"{HEAD}.{part}"
    change = seen[name].detach().cpu().double() - start[name].detach().cpu().double()
    return _numpy(change if part == "bias" else change.sum(dim=1))


def class_shares(labels: Tensor, classes: int) -> Values:
    """Return [C] shares of the classes among labels ([s] int64, all known); zeros where there are
    none.
    """
    counts = torch.bincount(labels.cpu(), minlength=classes).double()
    return _numpy(counts / counts.sum().clamp(min=1))


def label_correlation(scores: Values, shares: Values) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation over all (client, class) pairs, in [-1, 1].

    Both sides are taken as differences from their mean over clients. Scores that are the same for
    every client tell nothing of any: their correlation is not defined and 0 stands for it.

    Parameters
    ----------
    scores, shares : [M, C]
    """
    guess, truth = (_from_mean(values) for values in (scores, shares))
    if not guess.any() or not truth.any():
        return 0.0, 0.0
    return float(pearsonr(guess, truth).statistic), float(spearmanr(guess, truth).statistic)


def _from_mean(values: Values) -> Values:
    """Return [M * C] differences from the mean over clients, exactly 0 where they are rounding."""
    apart = (values - values.mean(axis=0)).ravel()
    return np.where(np.abs(apart) > _SAME * np.abs(values).max(initial=0.0), apart, 0.0)


def _numpy(values: Tensor) -> Values:
    return values.detach().cpu().double().numpy()
