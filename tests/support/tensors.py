"""What operations produce, seen by torch's own dispatch."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """Counts the elements of the largest tensor that an operation makes, views aside.

    Attributes
    ----------
    elements : of the largest storage made in the block, in elements of its tensor
    """

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for part in made if isinstance(made, tuple | list) else (made,):
            if isinstance(part, torch.Tensor):
                stored = part.untyped_storage().nbytes() // part.element_size()
                self.elements = max(self.elements, stored)
        return made
