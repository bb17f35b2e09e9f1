"""The state of a client between rounds of one run: core, coverage, and what was selected ahead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.config.paths import PREVIOUS, STATE
from dance_flwr.dance.ahead import Ahead, arrays_of_candidates, candidates_in
from dance_flwr.dance.evidence import Candidates
from dance_flwr.dance.nodes import Queue
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz

_SURVEY = ("times_selected", "difficulty")  # of all nodes; written at a condensation
_QUEUE = ("nodes", "ptr", "quotas")
_NUMBERS = (
    "round",
    "before",
    "core_round",
    "text_round",
    "ahead_round",
    "turn",
)  # places in "numbers"
_SURVEYS, _AHEAD = "survey", "ahead"  # files of a round, and the number that names it
_ROUND_OF = {_SURVEYS: "core_round", _AHEAD: "ahead_round"}
_MOST_LIVE = 64  # states in memory


@dataclass
class ClientState:
    """State of one client in one run.

    Attributes
    ----------
    times_selected : [n] int64, number of cores that contained each node
        before the last node condensation, which all that has an entry per node is of
    difficulty : [n] float32 u_v of the model that condensed
    queue : the order in which nodes enter cores
    turn : rounds trained since the condensation
    core : [K] int64, the core of the last round, ascending
    core_round, text_round : round of the last refresh; 0 = never
    frozen : evidence candidates of all n nodes, if they are selected in round 1 alone
    ahead : evidence and edges of the cores of the coming rounds; None = selected in every round
    ahead_round : round in which they were selected
    round : the round after which this state was saved; 0 = none yet
    """

    times_selected: Tensor
    difficulty: Tensor | None = None
    queue: Queue | None = None
    turn: int = 0
    core: Tensor | None = None
    core_round: int = 0
    text_round: int = 0
    frozen: Candidates | None = None
    ahead: Ahead | None = None
    ahead_round: int = 0
    round: int = 0

    @property
    def last_turn(self) -> int:
        """The turn of `core`; that of a core that never moves is 0."""
        return self.turn - 1 if self.queue is not None and self.queue.moves else 0


def due(last_round: int, every: int, round_: int) -> bool:
    """Whether a refresh is due in `round_`: in rounds 1, 1 + every, ..., and after a missed one.

    Parameters
    ----------
    last_round : round of the last refresh; 0 = never
    every : rounds between refreshes; 0 = only one refresh
    """
    if last_round == 0:
        return True
    return every > 0 and (round_ - 1) // every > (last_round - 1) // every


class RunFolder:
    """The folder `runs/<run>/` inside a client's folder.

    Parameters
    ----------
    client_folder : the client's folder
    run : name of the run, chosen by the server
    """

    # The state that this process wrote last, by folder, and the file as it was then.
    _live: ClassVar[dict[Path, tuple[tuple[int, ...], ClientState]]] = {}

    def __init__(self, client_folder: Path, run: str) -> None:
        self.folder = run_folder(client_folder, run)
        self.evidence_folder = self.folder / "evidence"
        self._continued = False

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

    def load(self, num_nodes: int, device: torch.device, before: int | None = None) -> ClientState:
        """Return the saved state, or a fresh one.

        Parameters
        ----------
        before : return the state from before this round, even if this round was trained already
            and is repeated; None = the latest
        """
        written, live = self._live.pop(self.folder, ((), None))
        self._continued = live is not None and written == _stamp(self.folder / STATE)
        if live is not None and self._continued and (before is None or live.round < before):
            return live
        self._continued = False
        for path in (self.folder / STATE, self.folder / PREVIOUS) if before != 1 else ():
            if not path.is_file():
                continue
            state, base = self._read(path, num_nodes, device)
            if state is None:  # it or its survey was lost or damaged
                break
            if before is None or state.round < before:
                return state
            if not base:  # the client's first round is repeated
                break
        return ClientState(torch.zeros(num_nodes, dtype=torch.int64, device=device))

    def last_survey(self) -> Path | None:
        """Return the file of the last node condensation, None if there was none."""
        if not (stamp := _stamp(self.folder / STATE)):
            return None
        written, live = self._live.get(self.folder, ((), None))
        if live is None or written != stamp:
            path = self._file(_SURVEYS, _number(self.folder / STATE, "core_round"))
        else:
            path = self._file(_SURVEYS, live.core_round)
        return path if path.is_file() else None

    def lost(self, state: ClientState, round_: int) -> bool:
        """Whether `state`, loaded before `round_`, is fresh although an earlier one may exist.

        It may also be the client's first round; only the server knows.
        """
        if state.round or round_ == 1:
            return False
        path = self.folder / STATE
        return (
            not path.is_file() or _number(path, "round") != round_ or _number(path, "before") != 0
        )

    def save(
        self, state: ClientState, round_: int, kept: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Write the state after `round_` and keep the one before; an error changes nothing.

        What has one entry per node is a survey, written only in the round of a node condensation,
        and evidence selected ahead only in the round of its selection.

        Parameters
        ----------
        kept : what validations read until the next condensation, written with the survey
        """
        assert state.core is not None and state.queue is not None
        if state.core_round == round_:
            survey = _arrays(state, _SURVEY) | _arrays(state.queue, _QUEUE) | dict(kept or {})
            write_npz(self._file(_SURVEYS, round_), survey)
        if state.ahead is not None and state.ahead_round == round_:
            write_npz(self._file(_AHEAD, round_), state.ahead.arrays())
        numbers = (round_, state.round, *(getattr(state, name) for name in _NUMBERS[2:]))
        arrays = _arrays(state, ("core",)) | {"numbers": np.array(numbers)}
        if state.frozen is not None:
            arrays |= arrays_of_candidates(state.frozen)
        path = self.folder / STATE
        older = self._continued or (path.is_file() and _number(path, "round") < round_)
        write_npz(path, arrays, keep=self.folder / PREVIOUS if older else None)
        if round_ in {state.core_round, state.ahead_round}:
            self._drop_old({_SURVEYS: state.core_round, _AHEAD: state.ahead_round})
        state.round = round_
        while len(self._live) >= _MOST_LIVE:
            self._live.pop(next(iter(self._live)))
        self._live[self.folder] = _stamp(path), state

    def _file(self, kind: str, round_: int) -> Path:
        return self.folder / f"{kind}-{round_:05d}.npz"

    def _drop_old(self, newest: Mapping[str, int]) -> None:
        """Remove files that neither the state nor the one before needs.

        Parameters
        ----------
        newest : kind -> round of the file that the state needs
        """
        before = numbers_of(self.folder / PREVIOUS)
        for kind, round_ in newest.items():
            needed = {round_, before.get(_ROUND_OF[kind], round_)}
            for path in self.folder.glob(f"{kind}-?????.npz"):
                if path not in {self._file(kind, number) for number in needed}:
                    path.unlink()

    def _read(
        self, path: Path, num_nodes: int, device: torch.device
    ) -> tuple[ClientState | None, int]:
        """Return the state in a file and the round of the state before it; 0 = there was none.

        None where the file, or what belongs to it, is missing, damaged or of an earlier version.
        """
        try:
            return self._restored(path, num_nodes, device)
        except KeyError:  # a whole file without an array that this version reads
            return None, 0

    def _restored(
        self, path: Path, num_nodes: int, device: torch.device
    ) -> tuple[ClientState | None, int]:
        raw = read_npz(path)
        numbers = _numbers_in(raw)
        survey = read_npz(self._file(_SURVEYS, numbers["core_round"])) if numbers else None
        ahead = self._read_ahead(numbers.get("ahead_round", 0), device)
        if raw is None or survey is None or (ahead is None and numbers["ahead_round"]):
            return None, 0
        raw |= survey
        tensors = {
            name: torch.as_tensor(array, device=device) for name, array in raw.items() if array.ndim
        }
        state = ClientState(tensors["times_selected"], tensors["difficulty"], core=tensors["core"])
        state.queue = Queue(*(tensors[name] for name in _QUEUE))
        state.ahead = ahead
        for name in ("round", *_NUMBERS[2:]):
            setattr(state, name, numbers[name])
        if "chunks_ptr" in raw:
            state.frozen = candidates_in(tensors, torch.arange(num_nodes, device=device))
        return state, numbers["before"]

    def _read_ahead(self, round_: int, device: torch.device) -> Ahead | None:
        """Return what was selected ahead in this round; None if that is missing or damaged."""
        arrays = read_npz(self._file(_AHEAD, round_)) if round_ else None
        return None if arrays is None else Ahead.read(arrays, device)


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced; () if there is none."""
    if not path.is_file():
        return ()
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _arrays(state: ClientState | Queue, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: getattr(state, name).cpu().numpy() for name in names}


def numbers_of(path: Path) -> dict[str, int]:
    """Return the numbers of a state's file by name; none where it is damaged."""
    return _numbers_in(read_npz(path))


def _numbers_in(arrays: Mapping[str, NDArray[Any]] | None) -> dict[str, int]:
    values = (arrays or {}).get("numbers", ())
    return dict(zip(_NUMBERS, map(int, values), strict=True)) if len(values) else {}


def _number(path: Path, name: str) -> int:
    return numbers_of(path).get(name, 0)
