"""The edge predictor, which tells pairs of texts of relevant edges from others."""

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr_rivals.llm4rgnn import Llm4RgnnConfig

# The thresholds of the public code.
POSITIVE, NEGATIVE = 5, 4  # relevance at least, at most
_HELD_OUT = 0.1  # share of the pairs that decides when to stop
_FEWEST = 2  # pairs of each kind
_ROWS = 8192  # pairs in memory at a time


class EdgePredictor(nn.Sequential):
    """p(u, v) = sigmoid(MLP(d t_u * t_v, sqrt(d) |t_u - t_v|)), symmetric in u and v.

    Texts of norm 1 and width d have entries near 1 / sqrt(d); the factors bring both parts near 1.
    ReLU and dropout between the layers.
    """

    def __init__(self, text_dim: int, settings: Llm4RgnnConfig) -> None:
        widths = [2 * text_dim, *[settings.predictor_width] * (settings.predictor_layers - 1)]
        hidden: list[nn.Module] = []
        for before, after in pairwise(widths):
            hidden += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(settings.predictor_dropout)]
        super().__init__(*hidden, nn.Linear(widths[-1], 1))

    def logits(self, features: Tensor, pairs: Tensor) -> Tensor:
        """Return the logits of pairs; [n, d], [m, 2] int64 -> [m]."""
        first, second = features[pairs[:, 0]], features[pairs[:, 1]]
        width = features.size(1)
        # Symmetric in its ends, unlike the public code's [u || v]: a link has no direction.
        both = [width * (first * second), width**0.5 * (first - second).abs()]
        return self(torch.cat(both, dim=1)).flatten()  # type: ignore[no-any-return]

    @torch.no_grad()
    def probabilities(self, features: Tensor, pairs: Tensor) -> Tensor:
        """Return p of every pair, in evaluation mode; [n, d], [m, 2] int64 -> [m]."""
        self.eval()
        blocks = [self.logits(features, part) for part in torch.split(pairs, _ROWS)]
        return torch.sigmoid(torch.cat(blocks))


def labelled_pairs(pairs: Tensor, scores: Tensor, num_edges: int) -> tuple[Tensor, Tensor]:
    """Return the positive and negative pairs of the predictor; [p, 2], [q, 2] int64.

    Positives are edges of relevance 5 or more. Negatives are edges of relevance 1 to 4; where they
    are fewer than the positives, the least similar pairs of relevance 1 to 4 are added, least
    similar first, until they are as many.

    Parameters
    ----------
    pairs : [m, 2] int64, edges, then pairs without one, least similar first
    scores : [m] int64, 0 = none
    num_edges : how many are edges
    """
    edge = torch.arange(len(pairs), device=pairs.device) < num_edges
    low = (scores > 0) & (scores <= NEGATIVE)
    positives, negatives = pairs[edge & (scores >= POSITIVE)], pairs[edge & low]
    # As in the public code, topped up to as many negatives as positives.
    missing = max(len(positives) - len(negatives), 0)
    return positives, torch.cat([negatives, pairs[~edge & low][:missing]])


def train_predictor(
    features: Tensor, positives: Tensor, negatives: Tensor, settings: Llm4RgnnConfig
) -> EdgePredictor | None:
    """Minimise the mean BCE by Adam with early stopping; return the predictor of the best epoch.

    A tenth of the pairs, at least one, is held out. None is returned if there are fewer than two
    pairs of either kind, or no epochs. Draws from torch's global generator.

    Parameters
    ----------
    features : t, [n, d]
    positives : [p, 2] int64
    negatives : [q, 2] int64
    """
    if min(len(positives), len(negatives)) < _FEWEST or not settings.predictor_epochs:
        return None
    model = EdgePredictor(features.size(1), settings).to(features.device)
    pairs = torch.cat([positives, negatives])
    targets = torch.cat([features.new_ones(len(positives)), features.new_zeros(len(negatives))])
    order = torch.randperm(len(pairs)).to(pairs.device)
    # At least one pair, or nothing would say when to stop.
    held, used = order.tensor_split([max(1, int(_HELD_OUT * len(pairs)))])
    optimizer = torch.optim.Adam(
        model.parameters(),
        lr=settings.predictor_learning_rate,
        weight_decay=settings.predictor_weight_decay,
        fused=True,
    )
    best, best_loss, waited = copy.deepcopy(model.state_dict()), torch.inf, 0
    for _ in range(settings.predictor_epochs):
        model.train()
        shuffled = used[torch.randperm(len(used)).to(used.device)]
        for batch in torch.split(shuffled, settings.predictor_batch):
            optimizer.zero_grad()
            _loss(model, features, pairs[batch], targets[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = float(_loss(model, features, pairs[held], targets[held]))
        # The parameters of the best epoch are kept, not those after the patience.
        waited += 1
        if loss < best_loss:
            best, best_loss, waited = copy.deepcopy(model.state_dict()), loss, 0
        if waited >= settings.predictor_patience:
            break
    model.load_state_dict(best)
    return model.eval()


def _loss(model: EdgePredictor, features: Tensor, pairs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model.logits(features, pairs), targets)
