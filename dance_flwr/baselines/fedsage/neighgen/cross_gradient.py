"""The cross gradient: the gradient of one client's fGen, computed on another client's nodes."""

import torch
from torch import Tensor

from dance_flwr.baselines.fedsage.neighgen.losses import nearest_distances
from dance_flwr.baselines.fedsage.neighgen.networks import FeatureGenerator

State = dict[str, Tensor]


def cross_loss(
    generated: Tensor, counts: Tensor, targets: Tensor, features: Tensor, clients: int
) -> Tensor:
    """(1 / M) mean_v sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2 over the b nodes of the batch.

    Parameters
    ----------
    generated : x', [b, P, F]
    counts : c, [b] int64
    targets : T, [b, D] int64 rows of `features`, padded with -1
    features : [n, F]
    clients : M
    """
    distances = nearest_distances(generated, counts, targets, features)
    return distances.sum() / (max(len(counts), 1) * clients)


def cross_gradient(
    feature_generator: FeatureGenerator,
    latents: Tensor,
    counts: Tensor,
    table: Tensor,
    features: Tensor,
    clients: int,
) -> State:
    """Return d cross_loss / d theta of another client's fGen, by parameter name.

    Each node of the batch is compared with the neighbours of a random local node. The gradient is
    zero where the batch is empty or no local node has a neighbour.

    Parameters
    ----------
    feature_generator : the other client's fGen
    latents : its z + noise, [b, latent]
    counts : its c, [b] int64
    table : [n, D] int64, neighbours of the local nodes without test nodes, padded with -1
    features : [n, F] of the local nodes
    clients : M
    """
    nodes = torch.nonzero(table[:, 0] >= 0).flatten() if table.size(1) else table.new_empty(0)
    parameters = dict(feature_generator.named_parameters())
    if not len(nodes) or not len(counts):
        return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    targets = table[nodes[torch.randint(len(nodes), (len(counts),)).to(nodes.device)]]
    loss = cross_loss(feature_generator(latents), counts, targets, features, clients)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, gradients, strict=True))
