"""Post-process the predictions of any method on the client's own graph."""

import torch
from torch import Tensor, nn

from dance_flwr.client_data.client_data import ClientData

_STEPS, _ALPHA = 50, 0.8


@torch.no_grad()
def correct_and_smooth(probs: Tensor, data: ClientData) -> Tensor:
    """Correct and smooth (Huang et al. 2021): propagate residuals of training labels, then labels.

    Uses torch-geometric's module with 50 steps of alpha = 0.8 for each. Only the client's own graph
    and training labels are read; nothing leaves the client.

    Parameters
    ----------
    probs : [n, C] probabilities

    Returns
    -------
    [n, C] rows that sum to 1
    """
    # Training labels only, as validation and test nodes measure the result.
    known = data.train_labels >= 0
    if not bool(known.any()):
        return probs
    rows, cols = data.graph.edges()
    target = data.train_labels[known]
    smoothed = _module()(probs, target, known, torch.stack([cols, rows]))
    # A node without neighbours has nothing to average and keeps its prediction.
    total = smoothed.sum(dim=1, keepdim=True)
    return torch.where(total > 0, smoothed / total.clamp(min=torch.finfo(probs.dtype).tiny), probs)


def _module() -> nn.Module:
    """Return torch-geometric's module without its code in the temporary folder."""
    from torch_geometric.nn import CorrectAndSmooth, LabelPropagation

    from dance_flwr.nn.message_passing import compiled_nowhere

    propagation = compiled_nowhere(LabelPropagation)(_STEPS, _ALPHA)

    class Module(CorrectAndSmooth):  # type: ignore[misc]  # torch-geometric has no types
        def __init__(self) -> None:
            nn.Module.__init__(self)  # not its own, which would build the layers that write
            self.autoscale, self.scale = True, 1.0
            self.prop1 = self.prop2 = propagation

    return Module()
