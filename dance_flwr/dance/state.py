"""A client's stored state between two rounds, and the files it refers to."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from dance_flwr.client_data.cached import Cached, anew, file_version
from dance_flwr.config.paths import PREVIOUS, STATE
from dance_flwr.dance.plan import Arrays
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.nn.moving import HOST, moved

# Files of a round, `<name>-<round>.npz`: a node condensation, the evidence that it selected for the
# nodes of validations, the plan of the coming rounds, and evidence of all nodes, selected once.
CONDENSATION, VALIDATION, PLAN, STATIC = "condensation", "validation", "plan", "static"


@dataclass
class ClientState:
    """Where a client stands in a run; as large as a core, whatever n is.

    Attributes
    ----------
    round : the round that is trained, or after which the state was saved; 0 = none yet
    before : the round of the state that this one followed; 0 = there was none
    core_round, text_round, plan_round : round of the last node condensation, of the last selection
        of evidence, and of the stored plan; 0 = none
    turn : rounds trained since the condensation
    moves : whether successive cores differ
    core : [K] int64, the core of the last round, ascending
    """

    round: int = 0
    before: int = 0
    core_round: int = 0
    text_round: int = 0
    plan_round: int = 0
    turn: int = 0
    moves: bool = False
    core: Int64[Tensor, "K"] = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    @property
    def next_turn(self) -> int:
        """The turn of the next core; that of a core that never moves is 0."""
        return self.turn if self.moves else 0

    @property
    def last_turn(self) -> int:
        """The turn of `core`."""
        return self.turn - 1 if self.moves else 0

    def arrays(self) -> Arrays:
        """Return the arrays that a file stores: the core, and the other fields in their order."""
        *numbers, core = vars(self).values()
        # One array, as each costs a header and a checksum in every round.
        return {"core": core.cpu().numpy(), "numbers": np.array(numbers, np.int64)}

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the object from its `arrays`, as tensors; a KeyError names a missing one."""
        *numbers, moves = tensors["numbers"].tolist()
        fields = dict(zip(vars(cls()), [*numbers, bool(moves), tensors["core"]], strict=True))
        return cls(**fields)


def due(last_round: int, every: int, round_: int) -> bool:
    """Whether a refresh is due in `round_`: in rounds 1, 1 + every, ..., and after a missed one.

    Parameters
    ----------
    last_round : round of the last refresh; 0 = never
    every : rounds between refreshes; 0 = only one refresh

    Examples
    --------
    >>> due(1, 10, 10), due(1, 10, 11), due(1, 10, 14)
    (False, True, True)
    """
    if last_round == 0:
        return True
    # Why not by the rounds since the last refresh: a client that missed one makes it up, and is due
    # with the others again.
    return every > 0 and (round_ - 1) // every > (last_round - 1) // every


class _Stored(Protocol):
    def arrays(self) -> Arrays: ...

    @classmethod
    def from_arrays(cls, tensors: Mapping[str, Tensor]) -> Self: ...


Stored = TypeVar("Stored", bound=_Stored)


class RunFolder:
    """The folder `runs/<run>/` inside a client's folder.

    Parameters
    ----------
    client_folder : the client's folder
    run : name of the run, chosen by the server
    cached : `ClientData.cached`, so that what every round reads is parsed once; by default anew
    """

    def __init__(self, client_folder: Path, run: str, cached: Cached = anew) -> None:
        self._cached = cached
        self.folder = run_folder(client_folder, run)
        self.evidence_folder = self.folder / "evidence"

    def round_path(self, round_: int) -> Path:
        """Return the file of the packs of a round's refresh."""
        return self.evidence_folder / f"round-{round_:05d}.npz"

    @property
    def final_path(self) -> Path:
        """File of the packs that the final (best) model selected."""
        return self.evidence_folder / "final.npz"

    @property
    def summaries_path(self) -> Path:
        """File of the summaries of those packs."""
        return self.evidence_folder / "summaries.json"

    @property
    def seal_path(self) -> Path:
        """File with the digests of the run's evidence at its end."""
        return self.folder / "evidence-sealed.json"

    def all_packs(self) -> list[Path]:
        """Return the files of all packs of the run, by round, then the final ones."""
        return [
            *sorted(self.evidence_folder.glob("round-*.npz")),
            *self.evidence_folder.glob("final.npz"),
        ]

    def load(self, device: torch.device, before: int | None = None) -> ClientState:
        """Return the saved state; a fresh one if there is none, or if it or its files are lost.

        Parameters
        ----------
        before : return the state from before this round, even if this round was trained already
            and is repeated; None = the latest
        """
        # Nothing precedes round 1, whatever an earlier run of the same name has left.
        for path in (self.folder / STATE, self.folder / PREVIOUS) if before != 1 else ():
            state = self._stored(path, ClientState, device)
            # Why not the state before it (decision 20): a damaged state counts as lost.
            if path.is_file() and (state is None or not self._has_files(state)):
                break
            if state is not None and (before is None or state.round < before):
                return state
            if state is not None and not state.before:  # the client's first round is repeated
                break
        return ClientState()

    def lost(self, round_: int) -> bool:
        """Whether a state of an earlier round may be lost, where `load` before `round_` is fresh.

        It may also be the client's first round; only the server knows.
        """
        state = self._stored(self.folder / STATE, ClientState, HOST)
        return round_ > 1 and (state is None or state.round != round_ or state.before != 0)

    def save(self, state: ClientState) -> None:
        """Write the state after `state.round` and keep the one before; an error changes nothing."""
        # Why the state last (decision 10): it names the rounds of the other files, so that a round
        # which ends before this line is as if it had never begun.
        path = self.folder / STATE
        older = self._stored(path, ClientState, HOST)
        # A repeated round replaces its own state, never the one from which it started.
        repeats = older is not None and older.round >= state.round
        write_npz(path, state.arrays(), keep=None if repeats else self.folder / PREVIOUS)
        self._stored(path, ClientState, HOST, state)
        # Only a round that wrote a file makes older ones superfluous.
        if state.round in _rounds(state).values():
            self._remove_files([state, read_stored(self.folder / PREVIOUS, ClientState, HOST)])

    def path(self, name: str, round_: int) -> Path:
        """Return the file of this name and round."""
        return self.folder / f"{name}-{round_:05d}.npz"

    def latest(self, name: str) -> Path | None:
        """Return the file of this name that the saved state refers to; None if there is none."""
        state = self._stored(self.folder / STATE, ClientState, HOST)
        path = self.path(name, _rounds(state)[name]) if state is not None else None
        return path if path is not None and path.is_file() else None

    def read_latest(self, name: str, kind: type[Stored], device: torch.device) -> Stored | None:
        """Return the content of the `latest` file of this name, cached; None if there is none."""
        path = self.latest(name)
        return None if path is None else self._stored(path, kind, device)

    def write(self, name: str, round_: int, content: _Stored) -> None:
        """Write the file of this name and round; the next state refers to it."""
        path = self.path(name, round_)
        write_npz(path, content.arrays())
        if name == PLAN:  # the next rounds train on it
            self._stored(path, type(content), HOST, moved(content, HOST))

    def read(
        self, name: str, round_: int, kind: type[Stored], device: torch.device
    ) -> Stored | None:
        """Return the content of a file; None if it is missing, damaged or lacks an array."""
        path = self.path(name, round_)
        # Why the plan alone (decision 16): the others have an entry per node, read by refreshes.
        return (self._stored if name == PLAN else read_stored)(path, kind, device)

    def _stored(
        self, path: Path, kind: type[Stored], device: torch.device, new: Stored | None = None
    ) -> Stored | None:
        """Return `read_stored` of a file, parsed once, or `new`, its present content."""
        if (version := file_version(path)) is None:
            return None
        name = path.name.partition("-")[0]  # without the round: one file of each is in memory
        compute = partial(copy, new) if new else partial(read_stored, path, kind, device)
        # Copied in and out, as rounds change their states.
        return copy(self._cached(name, (version, device), compute))  # type: ignore[no-any-return]

    def _has_files(self, state: ClientState) -> bool:
        # The others are computed again where one is missing.
        rounds = _rounds(state)
        return all(
            self.path(name, rounds[name]).is_file() for name in (CONDENSATION, PLAN) if rounds[name]
        )

    def _remove_files(self, states: Iterable[ClientState | None]) -> None:
        rounds = [_rounds(state) for state in states if state is not None]
        for name in (CONDENSATION, VALIDATION, PLAN, STATIC):
            needed = {self.path(name, by_name[name]) for by_name in rounds}
            for path in self.folder.glob(f"{name}-?????.npz"):
                if path not in needed:
                    path.unlink()


def _rounds(state: ClientState) -> dict[str, int]:
    return {
        CONDENSATION: state.core_round,
        VALIDATION: state.core_round,
        PLAN: state.plan_round,
        STATIC: state.text_round,
    }


def read_stored(path: Path, kind: type[Stored], device: torch.device) -> Stored | None:
    """Return what a file holds; None if it is missing, damaged or lacks an array."""
    if (arrays := read_npz(path)) is None:
        return None
    try:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return moved(kind.from_arrays(tensors), device)
    except (KeyError, TypeError, ValueError):  # of another version, or with arrays of strings
        return None
