"""A client's upload in few bits, with error feedback.

The residual, the part of past updates that rounding lost, is in the client's folder of the run.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import numpy as np
import torch
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr import events
from dance_flwr.client_data.cached import Cached, anew, file_version
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.privacy.clipping import State, clip, update_of
from dance_flwr.federation.privacy.quantiser import Quantised, dequantise, quantise
from dance_flwr.federation.secagg.sums import SumOptions, check_bounded, options_of
from dance_flwr.federation.wire import keys, messages
from dance_flwr.methods.fixed_point import encode_update, to_steps

RESIDUAL, PREVIOUS_RESIDUAL = "residual.npz", "residual-previous.npz"


@dataclass(frozen=True)
class _Saved:
    """A residual and its history.

    Attributes
    ----------
    round, before : of this residual and of the one before it; 0 = none
    values : [d] float32, the entries of all tensors
    """

    round: int = 0
    before: int = 0
    values: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


class ResidualFile:
    """e_t of one client in one run, with the one before it, so that a round can be repeated.

    Parameters
    ----------
    cached : `ClientData.cached`, so that a process does not read its own files again
    """

    def __init__(self, client_folder: Path, run: str, client: int, cached: Cached = anew) -> None:
        self._cached = cached
        folder = run_folder(client_folder, run)
        self._path, self._previous = folder / RESIDUAL, folder / PREVIOUS_RESIDUAL
        self._client = client
        self._before = self._newest = 0

    def load(self, like: State, round_: int) -> State:
        """Return the residual from before `round_`, even if that round is repeated.

        It is zero in round 1, in the client's first round, and if the file is lost or damaged, with
        a warning after round 1.

        Parameters
        ----------
        like : tensors with the names and shapes of the residual
        """
        size = sum(tensor.numel() for tensor in like.values())
        # The newest first; a repeated round starts from the one before, so that a second upload
        # equals the first (decision 14).
        for path in (self._path, self._previous) if round_ > 1 else ():
            saved = self._stored(path)
            self._newest = saved.round if path == self._path else self._newest
            if saved.round >= round_ and not saved.before:  # the client's first round is repeated
                return _split(np.zeros(size, np.float32), like)
            if 0 < saved.round < round_ and saved.values.size == size:
                self._before = saved.round
                return _split(saved.values, like)
        if round_ > 1:
            # Why (decision 14): a lost residual does not end a run.
            events.emit(
                "residual_absent",
                f"client {self._client}: expected what earlier rounds could not send, found none "
                "(its first round, or a lost folder); it starts from zero",
                logging.WARNING,
                client=self._client,
            )
        return _split(np.zeros(size, np.float32), like)

    def save(self, residual: State, round_: int) -> None:
        """Write the residual after `round_` and keep the one before; call `load` first."""
        parts = [tensor.numpy().ravel() for tensor in residual.values()]
        values = np.concatenate([np.zeros(0), *parts]).astype(np.float32)
        # A repeated round replaces only its own file.
        older = 0 < self._newest < round_
        saved = _Saved(round_, self._before, values)
        write_npz(self._path, vars(saved), keep=self._previous if older else None)
        self._stored(self._path, saved)

    def _stored(self, path: Path, new: _Saved | None = None) -> _Saved:
        """Return the content of a file, read once, or `new`, which was written to it."""
        if (version := file_version(path)) is None:
            return _Saved()
        return self._cached(path.name, version, lambda: new or _read(path))  # type: ignore[no-any-return]


def _read(path: Path) -> _Saved:
    arrays = read_npz(path)
    # Damaged counts as absent; `read_npz` compares the archive's checksums (decision 20).
    if arrays is None or not {"round", "before", "values"} <= arrays.keys():
        return _Saved()
    return _Saved(int(arrays["round"]), int(arrays["before"]), arrays["values"])


def _split(values: NDArray[np.float32], like: State) -> State:
    """Return a vector as tensors of float64, in the shapes of `like`."""
    sizes = [tensor.numel() for tensor in like.values()]
    parts = torch.split(torch.from_numpy(values.astype(np.float64)), sizes)
    return {name: part.view(like[name].shape) for name, part in zip(like, parts, strict=True)}


def noise_step(message: Message, client: Client) -> float | None:
    """Return the change of a weight per step of a masked sum with distributed noise, else None."""
    options = options_of(message)
    if client.config.privacy.dp != "distributed" or not options:
        return None
    return _step(options, client.weight)


def rounded_upload(
    state: Mapping[str, Tensor], start: Mapping[str, Tensor], message: Message, client: Client
) -> Quantised:
    """Return the upload for a trained state: Q(D + e) with D = omega - omega_0 and the residual e.

    As float16 or int8, or as steps of the sum (int64) under masks; entries that are not floats
    travel unchanged. Under central differential privacy D + e is clipped to C again and rounded
    towards zero, so that the upload is no longer than C.
    """
    precision, config = client.config.upload_precision, messages.config_of(message)
    if options := options_of(message):
        share = options.share(client.weight)
        # Why (decision 14): the update alone must be within the range, as in float32. With the
        # residual it may exceed it; the excess is cut, and stays in the residual.
        check_bounded(encode_update(state, start, share, options.bound), share, options.bound)
    update = update_of(state, start)
    rounded = {k: y for k, y in update.items() if options or start[k].is_floating_point()}
    data, round_ = client.data, int(config[keys.ROUND])
    file = ResidualFile(data.folder, config[keys.RUN], data.card.client, data.cached)
    wanted = {name: rounded[name] + e for name, e in file.load(rounded, round_).items()}
    central = client.config.privacy.dp == "central"
    if central:
        zero = {name: torch.zeros_like(y) for name, y in wanted.items()}
        # Why (decision 14): update and residual together may be longer than C. Rounding towards
        # zero lets no entry grow after this.
        wanted, _ = clip(wanted, zero, float(config[keys.CLIPPING_NORM]))
    if options:
        # Why (decision 14): fixed levels under masks, as nobody may know a client's own scale.
        # What exceeds R stays in the residual.
        bound, levels = options.bound, options.form.levels
        steps = {
            name: torch.from_numpy(
                np.asarray(
                    to_steps(
                        y.clamp(-bound, bound).numpy() * (share / bound),
                        levels,
                        toward_zero=central,
                    )
                )
            )
            for name, y in wanted.items()
        }
        step = _step(options, client.weight)
        upload, sent = Quantised(steps), {name: z * step for name, z in steps.items()}
    else:
        upload = quantise(wanted, precision, toward_zero=central)
        sent = dequantise(upload)
    residual = {name: y - sent[name] for name, y in wanted.items()}
    # Not finite: the server will refuse this upload.
    if isfinite(sum(float(e.sum()) for e in residual.values())):
        file.save(residual, round_)
    rest = {name: tensor for name, tensor in state.items() if name not in rounded}
    return Quantised({name: (upload.tensors | rest)[name] for name in start}, upload.scales)


def _step(options: SumOptions, weight: int) -> float:
    """Return the update per step of the sum at this client: 2 R / (q s)."""
    share = options.share(weight)
    # A client of weight 0 adds nothing to the sum.
    return 2 * options.bound / (options.form.levels * share) if share else 0.0
