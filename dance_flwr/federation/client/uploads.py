"""The model of a client as it travels: whole, or a rounded update with error feedback."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Message
from torch import Tensor

from dance_flwr.config.sections import FLOAT32
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.residual import ResidualFile
from dance_flwr.federation.client.secagg_mod import share_of, sum_options
from dance_flwr.federation.wire import keys, messages
from dance_flwr.privacy.mechanism import clip
from dance_flwr.privacy.quantiser import Quantised, State, dequantise, quantise, update_of
from dance_flwr.privacy.vectors import check_bounded, encode_update, to_steps


@dataclass(frozen=True)
class _Masked:
    """The grid of a masked sum.

    Attributes
    ----------
    share : s; bound : R; levels : q
    """

    share: float
    bound: float
    levels: int

    @property
    def step(self) -> float:
        """The update that one step of the sum stands for at this client: 2 R / (q s)."""
        return 2 * self.bound / (self.levels * self.share) if self.share else 0.0


def noise_step(message: Message, client: Client) -> float | None:
    """Return the change of a weight that one step of a masked sum of noisy updates stands for.

    None where noise is not drawn in steps: without masks, or not by all clients jointly.
    """
    options = sum_options(message)
    if client.config.privacy.dp != "distributed" or not options:
        return None
    return _grid(options, client.weight).step


def as_upload(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], message: Message, client: Client
) -> Quantised:
    """Return what the reply to TRAIN holds in the place of `state`.

    float32: the state itself, or the steps that it is already. Otherwise Q(D + e) with
    D = omega - omega_0 and e the residual in the client's folder, as float16 or int8, or as steps
    of the sum (int64) under masks; entries that are no floats travel unchanged. Under central
    differential privacy D + e is clipped to C again and rounded towards zero, so that what is sent
    is no longer than C.

    Raises
    ------
    UserError : under masks, D exceeds the bound of this run
    """
    precision, config = client.config.upload_precision, messages.config_of(message)
    if precision == FLOAT32:
        return Quantised(dict(state))
    options = sum_options(message)
    grid = _grid(options, client.weight) if options else None
    if grid:
        update = encode_update(state, start, grid.share, grid.bound)
        check_bounded(update, grid.share, grid.bound)
    whole = update_of(state, start)
    own = {name: y for name, y in whole.items() if grid or start[name].is_floating_point()}
    data, round_ = client.data, int(config[keys.ROUND])
    file = ResidualFile(data.folder, config[keys.RUN], data.card.client)
    wanted = {name: own[name] + e for name, e in file.load(own, round_).items()}
    central = client.config.privacy.dp == "central"
    if central:
        zero = {name: torch.zeros_like(y) for name, y in wanted.items()}
        wanted, _ = clip(wanted, zero, float(config[keys.CLIPPING_NORM]))
    if grid:
        steps = _steps(wanted, grid, toward_zero=central)
        upload, sent = Quantised(steps), {name: z * grid.step for name, z in steps.items()}
    else:
        upload = quantise(wanted, precision, toward_zero=central)
        sent = dequantise(upload)
    residual = {name: y - sent[name] for name, y in wanted.items()}
    # A residual that is not finite is that of an upload which the server refuses.
    if all(bool(e.isfinite().all()) for e in residual.values()):
        file.save(residual, round_)
    rest = {name: tensor for name, tensor in state.items() if name not in own}
    return Quantised({name: (upload.tensors | rest)[name] for name in start}, upload.scales)


def _grid(options: Mapping[str, Any], weight: int) -> _Masked:
    return _Masked(share_of(weight, options), options[keys.UPDATE_RANGE], options[keys.LEVELS])


def _steps(wanted: State, grid: _Masked, *, toward_zero: bool) -> State:
    """Return y in steps of the sum; what exceeds R stays in the residual."""
    return {
        name: torch.from_numpy(
            np.asarray(
                to_steps(
                    y.clamp(-grid.bound, grid.bound).numpy() * (grid.share / grid.bound),
                    grid.levels,
                    toward_zero=toward_zero,
                )
            )
        )
        for name, y in wanted.items()
    }
