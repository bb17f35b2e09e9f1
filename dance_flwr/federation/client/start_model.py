"""Refuse a model that a server has crafted, before a client trains from it, and bound the update.

A sum over clients hides single rows only if the model makes it a sum of many. Where rows of the
first layer are parallel and biases go up in steps, differences of the updates of its units are
single rows of the data (Fowl et al. 2022, "Robbing the Fed"; Boenisch et al. 2021, "When the
Curious Abandon Honesty"). What is checked here is what these need at first; another construction
may pass, and only differential privacy bounds what any model extracts (docs/security.md).
"""

from collections.abc import Mapping
from functools import lru_cache
from math import inf

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.privacy.mechanism import clip
from dance_flwr.federation.wire import keys
from dance_flwr.methods.contract import Uplink
from dance_flwr.methods.upload_checks import model_fault, update_norm
from dance_flwr.nn.model import ModelShape, PlainModel, load_state

State = Mapping[str, Tensor]

# Why weights (decision 8): those of two units of an honest model have a cosine of at most 0.96,
# whereas what they make of a client's texts is parallel for up to a fifth of the units of trained
# models where a client has few classes or labels.
_PARALLEL, _MAX_SHARE = 0.99, 0.1
_ROUNDING = 1e-3  # of an initial model, between versions of torch


def check_start(client: Client, start: State, round_: int, max_change: float) -> float:
    """Return the length to which the client's update is clipped, after checking its start model.

    Raises
    ------
    UserError : it has other tensors than the models of the run; in round 1 it is not the initial
        model of the seed, and later farther away from it than `max_change`, unless the run adds
        noise; or more than a tenth of the units of its first layer are parallel
    """
    data, config = client.data, client.config
    shape = shape_of(data.text_dim, len(data.card.class_names), config)
    model, seeds, length = _seed_model(shape, config)
    if fault := model_fault(start, seeds):
        raise UserError(f"start model: {fault}; this node does not take part")
    bound, distance = max_change * length, update_norm(start, seeds)
    allowed = _ROUNDING * length if round_ == 1 else bound
    # Noise moves a model as far as it must, and bounds by itself what any model extracts.
    if round_ > 1 and config.privacy.dp != "none":
        allowed = inf
    if distance > allowed:
        expected = "the initial model of the run's seed in round 1"
        if round_ > 1:
            expected = f"one within {bound:.3g} ({keys.MAX_CHANGE}) of that of the run's seed"
        raise UserError(
            f"start model: expected {expected}, found one that differs by {distance:.3g}; this "
            "node does not take part"
        )
    # Where the server reads single uploads, no sum hides anything; and a model that one client
    # trains alone on few labels may have parallel rows. A plug-in may bring a network without a
    # backbone, whose first layer is unknown.
    if client.spec.uplink is Uplink.SUM and isinstance(model, PlainModel):
        # Why not the client's model (decision 31): each number that a host asks of a GPU is a wait.
        load_state(model, start)
        _refuse_parallel(model)
    return bound


def clipped(state: State, start: State, bound: float) -> State:
    """Return the trained model, or the one at this distance from `start` on the way to it."""
    # Numbers that are not finite stay, and are refused where an upload is checked. An update within
    # the bound is not touched: not even a bit of it may change.
    length = update_norm(state, start)
    return clip(state, start, bound)[0] if bound < length < inf else state


@lru_cache(maxsize=4)
def _seed_model(shape: ModelShape, config: RunConfig) -> tuple[nn.Module, State, float]:
    """Return a model to load others into, the initial one's state and its length."""
    model = initial_model(shape, config)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    zero = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    return model, state, update_norm(state, zero)


@torch.no_grad()
def _refuse_parallel(model: PlainModel) -> None:
    """Refuse a first layer in which more than a tenth of the units are parallel to another."""
    # Weights catch rows that are repeated, scaled or turned round; biases have no part in it.
    share = _parallel_share(model.backbone.text_weight())
    if share > _MAX_SHARE:
        raise UserError(
            f"start model: expected a first layer of which at most {_MAX_SHARE:.0%} of the units "
            f"have weights parallel to those of another, found {share:.0%}: a sum of updates could "
            "show single rows of the data; this node does not take part"
        )


def _parallel_share(rows: Tensor) -> float:
    """Return the share of rows whose cosine with another is above 0.99, whatever its sign."""
    unit = F.normalize(rows, dim=1)
    cosines = (unit @ unit.T).abs().fill_diagonal_(0)
    return float((cosines > _PARALLEL).any(dim=1).float().mean())
