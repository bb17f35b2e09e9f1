"""What a curious server can infer from a received model: members and the label distribution.

Membership: Yeom et al. 2018 ("Privacy Risk in Machine Learning") call a node a member if the
model's loss on it is small. Deviation: the score here is the slope of the loss from the model
before a round to the model received after it, so that nodes which are easy for any model do not
count. The adversary is strong: for every candidate it has the text, the edges and the label, and
may run models on the victim's graph.

Labels: a class that is frequent in the training data pulls its output up. The changes of the head's
bias are compared between clients.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.algorithm import select_evidence
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.losses import supervised_nodes
from dance_flwr.dance.model import DanceModel
from dance_flwr.dance.passes import DanceClient
from dance_flwr.dance.plan import Condensation, Plan
from dance_flwr.dance.state import CONDENSATION, PLAN, RunFolder
from dance_flwr.data.graphs.graph import TEST, VAL
from dance_flwr.nn.model import PlainModel

HEAD = "head_graph"
_ROUNDING = 1e-9  # a spread below this share of the largest value is rounding

Values = NDArray[np.float64]


def plain_losses(model: PlainModel, data: ClientData) -> Tensor:
    """Return [n] cross-entropies of the plain view on the whole graph, in nats, with gradient.

    Dropout is off; the loss is 0 where the label is unknown.
    """
    model.eval()
    hidden = model.backbone(data.features, data.graph.operator(model.backbone.operator))
    return F.cross_entropy(
        model.graph_logits(hidden), data.labels, ignore_index=-1, reduction="none"
    )


def node_losses(model: PlainModel, state: Mapping[str, Tensor], data: ClientData) -> Values:
    """Return [n] losses in nats of the plain view under `state`, which overwrites `model`."""
    model.load_state_dict(state)
    with torch.no_grad():
        return _numpy(plain_losses(model, data))


def loss_slope(
    model: PlainModel, start: Mapping[str, Tensor], seen: Mapping[str, Tensor], data: ClientData
) -> Values:
    """Return [n] minus the derivative of each loss at `start` along `seen - start`.

    It is the inner product of update and gradient, to which Gaussian noise is only added; the fall
    of the loss itself is distorted by noise that is larger than the update.
    """
    model.load_state_dict(start)
    losses = plain_losses(model, data)
    # J d by two backward passes, as sparse products have no forward mode: g(v) = J^T v is linear.
    # Only what the plain view reads has a gradient.
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


def supervised_members(
    model: PlainModel, state: Mapping[str, Tensor], data: ClientData, config: RunConfig, run: str
) -> Tensor:
    """Return [s] int64 nodes of the plain loss of the round that was just trained from `state`.

    What a client selects ahead is stored; the selection of a single round follows from its global
    model and the stored core, so it is recomputed. A model without a core was trained on all
    labelled training nodes. Overwrites the parameters of `model`.
    """
    if not isinstance(model, DanceModel):
        return torch.nonzero(data.train_labels >= 0).flatten()
    model.load_state_dict(state)
    settings = DanceConfig.of(config)
    folder, device = RunFolder(data.folder, run), data.device
    stored = folder.load(device)
    plan = folder.read(PLAN, stored.plan_round, Plan, device)
    if plan is not None:
        evidence = plan.padded(stored.last_turn)
    else:
        last = folder.read(CONDENSATION, stored.core_round, Condensation, device)
        assert last is not None
        client = DanceClient(model, data, settings, data.training_graph)
        evidence = select_evidence(client, stored.core, last.difficulty)[1].padded
    return supervised_nodes(evidence, data.train_labels, settings)


def held_out_nodes(data: ClientData) -> Tensor:
    """Return [b] int64 validation and test nodes with a label."""
    held_out = (data.split == VAL) | (data.split == TEST)
    return torch.nonzero(held_out & (data.labels >= 0)).flatten()


def membership(scores: Values, members: Tensor, others: Tensor) -> float | None:
    """Return the area under the ROC curve, 0.5 = chance; None where either set is empty.

    Parameters
    ----------
    scores : [n], larger = more likely a member; members, others : [a], [b] int64 node numbers
    """
    if not members.numel() or not others.numel():
        return None
    values = np.concatenate([scores[members.cpu().numpy()], scores[others.cpu().numpy()]])
    truth = np.repeat([1, 0], [members.numel(), others.numel()])
    return float(roc_auc_score(truth, values))


def head_change(start: Mapping[str, Tensor], seen: Mapping[str, Tensor]) -> Values:
    """Return [C] the change of the plain head's bias by class."""
    name = f"{HEAD}.bias"
    # In float64: a round changes a parameter by little.
    return _numpy(seen[name].cpu().double() - start[name].cpu().double())


def class_shares(labels: Tensor, classes: int) -> Values:
    """Return [C] shares of the classes among [s] int64 known labels; zeros without labels."""
    counts = torch.bincount(labels.cpu(), minlength=classes).double()
    return _numpy(counts / counts.sum().clamp(min=1))


def label_correlation(scores: Values, shares: Values) -> float:
    """Return Pearson's correlation over all (client, class) pairs, in [-1, 1].

    Both sides are differences from their mean over clients. Scores that are equal for all clients
    distinguish none: their correlation is undefined and reported as 0.

    Parameters
    ----------
    scores, shares : [M, C]
    """
    guess, truth = (_from_mean(values) for values in (scores, shares))
    if not guess.any() or not truth.any():
        return 0.0
    return float(pearsonr(guess, truth).statistic)


def _from_mean(values: Values) -> Values:
    """Return [M * C] differences from the mean over clients, exactly 0 below rounding."""
    apart = (values - values.mean(axis=0)).ravel()
    return np.where(np.abs(apart) > _ROUNDING * np.abs(values).max(initial=0.0), apart, 0.0)


def _numpy(values: Tensor) -> Values:
    return values.detach().cpu().double().numpy()
