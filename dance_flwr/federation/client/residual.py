"""Store what a client could not send of its updates so far, in its folder of the run."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr import events
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.federation.privacy.quantiser import State

RESIDUAL, PREVIOUS_RESIDUAL = "residual.npz", "residual-previous.npz"


@dataclass(frozen=True)
class _Saved:
    """A residual and its history.

    Attributes
    ----------
    round : after which it was saved, 0 = none; before : round of the one before it, 0 = none
    values : [d] float32, the entries of all tensors one after the other
    """

    round: int = 0
    before: int = 0
    values: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


class ResidualFile:
    """e_t of one client in one run; the one before is kept, so that a round can be repeated."""

    def __init__(self, client_folder: Path, run: str, client: int) -> None:
        folder = run_folder(client_folder, run)
        self._path, self._previous = folder / RESIDUAL, folder / PREVIOUS_RESIDUAL
        self._client = client
        self._before = self._newest = 0

    def load(self, like: State, round_: int) -> State:
        """Return the residual from before `round_`, even if that round is repeated.

        It is zero in round 1, in the client's first round, and where the file is lost or damaged;
        a warning says so after round 1.

        Parameters
        ----------
        like : tensors of the names and shapes of the residual
        """
        size = sum(tensor.numel() for tensor in like.values())
        # The newest first. The one before it is what a repeated round starts from, so that a second
        # upload equals the first (decision 14).
        for path in (self._path, self._previous) if round_ > 1 else ():
            saved = _read(path)
            self._newest = saved.round if path == self._path else self._newest
            if saved.round >= round_ and not saved.before:  # the client's first round is repeated
                return _split(np.zeros(size, np.float32), like)
            if 0 < saved.round < round_ and saved.values.size == size:
                self._before = saved.round
                return _split(saved.values, like)
        if round_ > 1:
            # Why (decision 14): a lost residual is one warning; no run ends for it.
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
        values = [tensor.numpy().astype(np.float32).ravel() for tensor in residual.values()]
        arrays = {"round": np.int64(round_), "before": np.int64(self._before)}
        # A repeated round replaces its own file alone: the one before stays that of the last round.
        older = 0 < self._newest < round_
        content = arrays | {"values": np.concatenate([np.zeros(0, np.float32), *values])}
        write_npz(self._path, content, keep=self._previous if older else None)


def _read(path: Path) -> _Saved:
    """Return what a file holds; nothing where it is absent or damaged."""
    arrays = read_npz(path)
    # Damaged counts as absent: the checksums of the archive have been compared (decision 20).
    if arrays is None or not {"round", "before", "values"} <= arrays.keys():
        return _Saved()
    return _Saved(int(arrays["round"]), int(arrays["before"]), arrays["values"])


def _split(values: NDArray[np.float32], like: State) -> State:
    """Return a vector as tensors of float64, in the shapes of `like`."""
    sizes = [tensor.numel() for tensor in like.values()]
    parts = torch.split(torch.from_numpy(values.astype(np.float64)), sizes)
    return {name: part.view(like[name].shape) for name, part in zip(like, parts, strict=True)}
