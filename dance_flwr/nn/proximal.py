"""FedProx's proximal term, around any local training."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def proximal_term(
    model: nn.Module, mu: float, anchor: Iterable[Tensor] | None = None
) -> Iterator[None]:
    """Add the gradient of (mu / 2) ||omega - omega_0||^2 to every backward pass of the block.

    omega_0 is `anchor`, one tensor per parameter; without it the parameters at the start of the
    block (Li et al. 2020). No effect if `mu` is 0.
    """
    hooks = []
    parameters = list(model.parameters())
    if anchor is None:
        anchor = [parameter.detach().clone() for parameter in parameters]
    for parameter, start in zip(parameters, anchor, strict=True) if mu else ():
        # A hook on the gradient and no term of the loss: it works with any local training. `start`
        # is bound as a default, as the loop goes on to other parameters.
        def add(changed: Tensor, start: Tensor = start) -> None:
            assert changed.grad is not None
            changed.grad.add_(changed.detach() - start, alpha=mu)

        hook = parameter.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]
        hooks.append(hook)
    try:
        yield
    # Also after an error: the model outlives the block.
    finally:
        for hook in hooks:
            hook.remove()
