"""What one client's generator learns of another's nodes: a gradient of fGen's weights, taken where
the nodes are.
"""

import torch
from torch import Tensor

from dance_flwr.methods.fedsage.neighgen.losses import nearest
from dance_flwr.methods.fedsage.neighgen.networks import Maker

State = dict[str, Tensor]


def cross_loss(
    made: Tensor, counts: Tensor, targets: Tensor, features: Tensor, clients: int
) -> Tensor:
    """(1 / M) mean_v sum_{p < c_v} min_{u in T_v} ||x'_vp - x_u||^2 over the b nodes of the batch.

    Parameters
    ----------
    made : x', [b, P, F]; counts : c, [b] int64; targets : T, [b, D] int64 rows of `features` [n,
        F], -1 beyond them
    clients : M
    """
    return nearest(made, counts, targets, features).sum() / (max(len(counts), 1) * clients)


def cross_gradient(
    maker: Maker, latents: Tensor, counts: Tensor, table: Tensor, features: Tensor, clients: int
) -> State:
    """D cross_loss / d theta of another client's fGen, by name of a parameter; zeros where nothing
    can be said.

    Each node of the batch is held against the neighbours of a random node here.

    Parameters
    ----------
    maker : the other client's fGen
    latents : its z + noise, [b, latent]; counts : its c, [b] int64
    table : [n, D] int64, neighbours of the nodes here, -1 beyond them; no test node is among them
    features : [n, F] of the nodes here
    """
    own = torch.nonzero(table[:, 0] >= 0).flatten() if table.size(1) else table.new_empty(0)
    if not len(own) or not len(counts):
        return {name: torch.zeros_like(parameter) for name, parameter in maker.named_parameters()}
    targets = table[own[torch.randint(len(own), (len(counts),)).to(own.device)]]
    loss = cross_loss(maker(latents), counts, targets, features, clients)
    gradients = torch.autograd.grad(loss, list(maker.parameters()))
    return dict(zip(dict(maker.named_parameters()), gradients, strict=True))
