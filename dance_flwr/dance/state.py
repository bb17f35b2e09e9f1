"""The state of a client between rounds of one run: core, coverage, frozen evidence, adjacency."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dance_flwr.config.paths import PREVIOUS, STATE
from dance_flwr.dance.evidence import Candidates
from dance_flwr.data.site import run_folder
from dance_flwr.disk import write_npz
from dance_flwr.nn.ragged import Ragged


@dataclass
class ClientState:
    """State of one client in one run.

    Attributes
    ----------
    times_selected : [n] int64, number of cores that contained each node
    core : [K] int64, the current core
    core_round, text_round : round of the last refresh; 0 = never
    frozen : evidence candidates of all n nodes, kept until the next text refresh; None = selected
        in every round
    adjacency : (rows, cols, weights) of the reconstructed graph on the core
    round : the round after which this state was saved; 0 = none yet
    """

    times_selected: Tensor
    core: Tensor | None = None
    core_round: int = 0
    text_round: int = 0
    frozen: Candidates | None = None
    adjacency: tuple[Tensor, Tensor, Tensor] | None = None
    round: int = 0


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

    def __init__(self, client_folder: Path, run: str) -> None:
        self.folder = run_folder(client_folder, run)
        self.evidence_folder = self.folder / "evidence"

    def round_path(self, round_: int) -> Path:
        """Return the file of the packs of a round's refresh."""
        return self.evidence_folder / f"round-{round_:05d}.npz"

    @property
    def final_path(self) -> Path:
        """File of the packs that the final (best) model selected."""
        return self.evidence_folder / "final.npz"

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
        for path in (self.folder / STATE, self.folder / PREVIOUS) if before != 1 else ():
            if not path.is_file():
                continue
            state, base = _read(path, num_nodes, device)
            if before is None or state.round < before:
                return state
            if not base:  # the client's first round is repeated
                break
        return ClientState(torch.zeros(num_nodes, dtype=torch.int64, device=device))

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

    def save(self, state: ClientState, round_: int) -> None:
        """Write the state after `round_` and keep the one before; an error changes nothing."""
        assert state.core is not None and state.adjacency is not None
        arrays: dict[str, Tensor] = {"times_selected": state.times_selected, "core": state.core}
        arrays |= {
            "core_round": torch.tensor(state.core_round),
            "text_round": torch.tensor(state.text_round),
        }
        arrays |= {"round": torch.tensor(round_), "before": torch.tensor(state.round)}
        arrays |= dict(zip(("rows", "cols", "weights"), state.adjacency, strict=True))
        if state.frozen is not None:
            for hop, ragged in enumerate(state.frozen.hops):
                arrays |= {f"hop{hop}_ptr": ragged.ptr, f"hop{hop}_index": ragged.index}
            arrays |= {
                "chunks_ptr": state.frozen.chunks.ptr,
                "chunks_index": state.frozen.chunks.index,
            }
        path = self.folder / STATE
        older = path.is_file() and _number(path, "round") < round_
        keep = self.folder / PREVIOUS if older else None
        write_npz(path, {name: tensor.cpu().numpy() for name, tensor in arrays.items()}, keep=keep)


def _read(path: Path, num_nodes: int, device: torch.device) -> tuple[ClientState, int]:
    """Return the state in a file and the round of the state before it; 0 = there was none."""
    with np.load(path) as file:
        raw = {name: torch.as_tensor(file[name], device=device) for name in file.files}
    state = ClientState(
        raw["times_selected"], raw["core"], int(raw["core_round"]), int(raw["text_round"])
    )
    state.adjacency, state.round = (
        (raw["rows"], raw["cols"], raw["weights"]),
        int(raw.get("round", 0)),
    )
    if "chunks_ptr" in raw:
        hops = tuple(Ragged(raw[f"hop{hop}_ptr"], raw[f"hop{hop}_index"]) for hop in range(3))
        chunks = Ragged(raw["chunks_ptr"], raw["chunks_index"])
        state.frozen = Candidates(torch.arange(num_nodes, device=device), hops, chunks)  # type: ignore[arg-type]
    return state, int(raw.get("before", 0))


def _number(path: Path, name: str) -> int:
    with np.load(path) as file:
        return int(file[name]) if name in file.files else 0
