"""The model of a client as it travels: whole, or a rounded update with error feedback."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Message
from torch import Tensor

from dance_flwr.config.sections import FLOAT32
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.residual import ResidualFile
from dance_flwr.federation.privacy.mechanism import clip
from dance_flwr.federation.privacy.quantiser import (
    Quantised,
    State,
    dequantise,
    quantise,
    update_of,
)
from dance_flwr.federation.secagg.request import SumOptions, options_of
from dance_flwr.federation.secagg.vectors import check_bounded
from dance_flwr.federation.wire import keys, messages
from dance_flwr.methods.fixed_point import encode_update, to_steps


def noise_step(message: Message, client: Client) -> float | None:
    """Return the change of a weight that one step of a masked sum of noisy updates stands for.

    None where noise is not drawn in steps: without masks, or not by all clients jointly.
    """
    options = options_of(message)
    if client.config.privacy.dp != "distributed" or not options:
        return None
    return _step(options, client.weight)


def as_upload(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], message: Message, client: Client
) -> Quantised:
    """Return what the reply to TRAIN holds in the place of `state`.

    float32: the state itself, or the steps that it is already. Otherwise Q(D + e) with
    D = omega - omega_0 and e the residual in the client's folder, as float16 or int8, or as steps
    of the sum (int64) under masks; entries that are no floats travel unchanged. Under central
    differential privacy D + e is clipped to C again and rounded towards zero, so that what is sent
    is no longer than C.
    """
    precision, config = client.config.upload_precision, messages.config_of(message)
    if precision == FLOAT32:
        return Quantised(dict(state))
    if options := options_of(message):
        share = options.share(client.weight)
        # Why (decision 14): the update alone must be within the range, as in float32. With the
        # residual it may exceed it; that is cut, and stays in the residual.
        check_bounded(encode_update(state, start, share, options.bound), share, options.bound)
    update = update_of(state, start)
    rounded = {k: y for k, y in update.items() if options or start[k].is_floating_point()}
    data, round_ = client.data, int(config[keys.ROUND])
    file = ResidualFile(data.folder, config[keys.RUN], data.card.client)
    wanted = {name: rounded[name] + e for name, e in file.load(rounded, round_).items()}
    central = client.config.privacy.dp == "central"
    if central:
        zero = {name: torch.zeros_like(y) for name, y in wanted.items()}
        # Why (decision 14): update and residual together may be longer than C, although each update
        # was clipped. Rounded towards zero, no entry grows after this.
        wanted, _ = clip(wanted, zero, float(config[keys.CLIPPING_NORM]))
    if options:
        # Why (decision 14): fixed levels under masks, as nobody may know a client's own scale.
        steps = _steps(wanted, options, share, toward_zero=central)
        step = _step(options, client.weight)
        upload, sent = Quantised(steps), {name: z * step for name, z in steps.items()}
    else:
        upload = quantise(wanted, precision, toward_zero=central)
        sent = dequantise(upload)
    residual = {name: y - sent[name] for name, y in wanted.items()}
    # A residual that is not finite is that of an upload which the server refuses.
    if all(bool(e.isfinite().all()) for e in residual.values()):
        file.save(residual, round_)
    rest = {name: tensor for name, tensor in state.items() if name not in rounded}
    return Quantised({name: (upload.tensors | rest)[name] for name in start}, upload.scales)


def _step(options: SumOptions, weight: int) -> float:
    """Return the update that one step of the sum stands for at this client: 2 R / (q s)."""
    share = options.share(weight)
    # A client of weight 0 adds nothing to the sum: it has no step.
    return 2 * options.bound / (options.form.levels * share) if share else 0.0


def _steps(wanted: State, options: SumOptions, share: float, *, toward_zero: bool) -> State:
    """Return y in steps of the sum; what exceeds R stays in the residual."""
    bound, levels = options.bound, options.form.levels
    steps = {
        name: to_steps(
            y.clamp(-bound, bound).numpy() * (share / bound), levels, toward_zero=toward_zero
        )
        for name, y in wanted.items()
    }
    return {name: torch.from_numpy(np.asarray(part)) for name, part in steps.items()}
