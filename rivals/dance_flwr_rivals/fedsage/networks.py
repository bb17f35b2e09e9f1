"""NeighGen's networks: encoder, dGen (number of missing neighbours), fGen (their features)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.nn.backbone import dropout
from dance_flwr.nn.gcn import Layer
from dance_flwr_rivals.fedsage import FedSageConfig

# Those of the public code.
ENCODER_WIDTH, FIRST_WIDTH = 32, 256


class Encoder(nn.Module):
    """z = P relu(P LN(x) W_1 + b_1) W_2 + b_2, P = D^-1/2 (A + I) D^-1/2; [n, F] -> [n, latent].

    Inputs are layer-normalised as in every backbone: entries of a unit vector of text are small
    compared with the unit noise that is added to z.
    """

    def __init__(self, text_dim: int, latent_dim: int) -> None:
        super().__init__()
        self.first = Layer(text_dim, ENCODER_WIDTH)
        self.second = Layer(ENCODER_WIDTH, latent_dim)

    def forward(self, features: Tensor, graph: Tensor) -> Tensor:
        """Return z; `graph` is P, [n, n] sparse."""
        normalised = F.layer_norm(features, features.shape[-1:])
        hidden = F.relu(graph @ self.first.lin(normalised) + self.first.bias)
        out: Tensor = graph @ self.second.lin(hidden) + self.second.bias
        return out


class _Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.rate, self.training)


class FeatureGenerator(nn.Sequential):
    """fGen: z + noise -> 256 -> hidden -> P F; [b, latent] -> [b, P, F].

    ReLU between the layers, dropout before the last one, tanh at the end.
    """

    def __init__(self, text_dim: int, config: FedSageConfig, rate: float) -> None:
        neighbours = config.max_generated_per_node
        super().__init__(
            nn.Linear(config.latent_dim, FIRST_WIDTH),
            nn.ReLU(),
            nn.Linear(FIRST_WIDTH, config.maker_dim),
            nn.ReLU(),
            _Dropout(rate),
            nn.Linear(config.maker_dim, neighbours * text_dim),
            # Within [-1, 1], which holds texts of norm 1 and would not hold unscaled features.
            nn.Tanh(),
            nn.Unflatten(1, (neighbours, text_dim)),
        )


def round_counts(missing: Tensor, limit: int) -> Tensor:
    """Return round(m), at most P, without a gradient; [n] -> [n] int64."""
    # Detached: a count has no gradient, so that L_d alone trains dGen.
    return missing.detach().round().clamp(max=limit).long()


def add_noise(latents: Tensor) -> Tensor:
    """Return z + N(0, I)."""
    return latents + torch.randn_like(latents)


def empty_feature_generator(text_dim: int, config: FedSageConfig, rate: float) -> FeatureGenerator:
    """Return fGen on the meta device: names and shapes of its parameters, no memory."""
    with torch.device("meta"):
        return FeatureGenerator(text_dim, config, rate)


def load_feature_generator(
    weights: Mapping[str, Tensor], text_dim: int, config: FedSageConfig, rate: float
) -> FeatureGenerator:
    """Return fGen with these tensors as its parameters, in training mode; nothing is copied."""
    feature_generator = empty_feature_generator(text_dim, config, rate)
    feature_generator.load_state_dict(dict(weights), assign=True)
    return feature_generator.train()
