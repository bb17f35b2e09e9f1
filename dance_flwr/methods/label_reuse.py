"""Training labels as an input of the plain network: the key `label-reuse`.

After "label as input" of Wang, Jin, Zhang, Yu, Zhang and Wipf, "Bag of Tricks for Node
Classification with Graph Neural Networks", arXiv 2103.13355, 2021. In each local epoch a random
half of the training nodes shows its label, and the loss is on the other half, so that no node has
its own label as an input. Predictions are made with all training labels shown.

Deviations: labels are added after the texts are normalised and have no dropout of their own; the
predictions of a pass are not recycled as the input of another one, which the authors call "label
reuse" in the narrow sense.
"""

import torch
from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import generator


def input_labels(model: PlainModel, labels: Tensor) -> Tensor | None:
    """Y_v = one-hot(y_v), 0 where unknown; [n] int64 -> [n, C] float32.

    None where the model reads no labels, so that nothing is computed for it.
    """
    if model.label_weight is None:
        return None
    known = labels >= 0
    table = model.label_weight.new_zeros(len(labels), model.label_weight.size(1))
    table[known, labels[known]] = 1
    return table


class LabelHalves:
    """Splits training labels into inputs and targets, anew in each epoch.

    Without label reuse there are no inputs, and all labels are targets.

    Parameters
    ----------
    labels : [n] int64, all training labels of the client, -1 elsewhere
    round_ : t, from 1
    client : number of the client; seed, round and client determine the draws
    """

    def __init__(
        self, model: PlainModel, labels: Tensor, config: RunConfig, round_: int, client: int
    ) -> None:
        self._model, self._labels = model, labels
        # A purpose of its own: whether labels are an input changes no other draw.
        self._draws = generator(config.seed, "label-reuse", round_=round_, client=client)

    def split(self, targets: Tensor) -> tuple[Tensor | None, Tensor]:
        """Draw the halves of one epoch.

        Parameters
        ----------
        targets : [n] int64, training labels that the loss may cover, -1 elsewhere

        Returns
        -------
        inputs : `input_labels` of the labels that are shown, None without label reuse
        targets : the targets that are not shown, [n] int64, -1 elsewhere
        """
        # Before any draw: without labels as an input this is training on every target.
        if self._model.label_weight is None:
            return None, targets
        # Training nodes outside the targets show labels too, such as those outside a batch.
        covered = (self._labels >= 0) & (targets >= 0)
        is_input = self._half(covered) | self._half((self._labels >= 0) & (targets < 0))
        labels = torch.where(is_input, self._labels, -1)
        return input_labels(self._model, labels), torch.where(is_input, -1, targets)

    def _half(self, mask: Tensor) -> Tensor:
        """Return a random half of the nodes of a mask, rounded down; [n] bool.

        Halves are drawn from the targets and from the other training nodes apart, so that a target
        is left whenever there is one.
        """
        nodes = torch.nonzero(mask).flatten()
        # Drawn on the CPU, so that every device shows the same labels.
        order = torch.randperm(len(nodes), generator=self._draws).to(nodes.device)
        half = torch.zeros_like(mask)
        half[nodes[order[: len(nodes) // 2]]] = True
        return half
