"""Split conformal prediction at one client (LAC; Sadinle et al. 2019): sets of classes that cover.

With validation and new nodes exchangeable, the class of a new node is in its set with at least the
probability asked for, whatever the model is.
"""

from fractions import Fraction
from math import ceil

from torch import Tensor

from dance_flwr.errors import UserError


def conformal_threshold(probs: Tensor, labels: Tensor, coverage: float) -> float:
    """Return the ceil((m + 1) coverage)-th smallest of the scores 1 - p_v(y_v), v = 1 .. m.

    Parameters
    ----------
    probs, labels : [m, C] and [m] int64, of nodes that did not train the model
    coverage : in (0, 1)

    Raises
    ------
    UserError : there are too few nodes for that rank; every class would be in every set

    Examples
    --------
    >>> import torch
    >>> probs = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]])
    >>> round(conformal_threshold(probs, torch.tensor([0, 0, 0]), 0.5), 3)
    0.2
    """
    # As written, as 0.9 in binary is above nine tenths: the rank of 9 nodes would be 10.
    share = Fraction(str(coverage))
    rank = ceil((len(labels) + 1) * share)
    if rank > len(labels):
        raise UserError(
            f"--coverage: expected at least {ceil(share / (1 - share))} validation nodes with a "
            f"label for {coverage:g}, found {len(labels)}; ask for less, or name the folder of a "
            "client"
        )
    scores = 1 - probs.double().gather(1, labels[:, None])[:, 0]
    return float(scores.sort().values[rank - 1])


def prediction_sets(probs: Tensor, threshold: float) -> Tensor:
    """Return which classes are in the set of a node, those with 1 - p <= threshold; [m, C] bool."""
    return 1 - probs.double() <= threshold
