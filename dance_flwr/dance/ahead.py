"""What one refresh selects for the rounds until the next: evidence and edges of their cores."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.evidence import HOPS, Candidates, Chosen, freeze
from dance_flwr.dance.topology import Edges
from dance_flwr.nn.ragged import Ragged

_EDGES = ("rows", "cols", "weights")
Arrays = Mapping[str, NDArray[Any]]

# What a round trains on: candidates of the core's nodes, and what was chosen of them.
Batch = tuple[Candidates, Chosen]


@dataclass(frozen=True)
class Ahead:
    """Evidence and edges of successive cores of a queue.

    Attributes
    ----------
    first : turn of the first of these cores
    candidates : of the distinct nodes of all cores, ascending
    chosen : what was chosen of them; c_v in float16, which is most of what is kept
    edges : of the condensed graph of each core
    """

    first: int
    candidates: Candidates
    chosen: Chosen
    edges: tuple[Edges, ...]

    @classmethod
    def of(
        cls,
        first: int,
        candidates: Candidates,
        evidence: Chosen,
        edges: tuple[Edges, ...],
        *,
        whole: bool,
    ) -> "Ahead":
        """Keep what was selected, with the other candidates too and unrounded if `whole`."""
        if whole:
            return cls(first, candidates, evidence, edges)
        one, two, three = (gate[gate > 0] for gate in evidence.gates)
        weights = evidence.chunk_weights
        chosen = Chosen((one, two, three), weights[weights > 0], evidence.context.half())
        return cls(first, freeze(candidates, evidence), chosen, edges)

    def covers(self, turn: int) -> bool:
        """Whether the core of this turn is one of them."""
        return 0 <= turn - self.first < len(self.edges)

    def batch(self, core: Int64[Tensor, "K"], turn: int) -> tuple[Batch, Edges]:
        """Return what the round of this turn trains on, and its edges.

        Parameters
        ----------
        core : [K] int64, the core of this turn
        """
        edges = self.edges[turn - self.first]
        if len(self.edges) == 1:
            return (self.candidates, self.chosen), edges
        rows = torch.searchsorted(self.candidates.nodes, core)
        candidates, chosen = self.chosen.take(self.candidates, rows)
        return (candidates, replace(chosen, context=chosen.context.float())), edges

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file that holds this."""
        ends = np.cumsum([0, *(len(rows) for rows, _, _ in self.edges)])
        found: dict[str, Any] = {"nodes": self.candidates.nodes, "context": self.chosen.context}
        found |= {f"gate{hop}": self.chosen.gates[hop] for hop in HOPS}
        found |= {"chunk_weights": self.chosen.chunk_weights}
        found |= {
            name: torch.cat(list(part))
            for name, part in zip(_EDGES, zip(*self.edges, strict=True), strict=True)
        }
        arrays = {name: tensor.cpu().numpy() for name, tensor in found.items()}
        numbers = {"first": np.array(self.first), "edge_ptr": ends}
        return arrays | numbers | arrays_of_candidates(self.candidates)

    @classmethod
    def read(cls, arrays: Arrays, device: torch.device) -> "Ahead":
        """Return what `arrays` gave."""
        tensors = {name: torch.as_tensor(array, device=device) for name, array in arrays.items()}
        sizes = np.diff(arrays["edge_ptr"]).tolist()
        parts = [torch.split(tensors[name], sizes) for name in _EDGES]
        zero, one, two = (tensors[f"gate{hop}"] for hop in HOPS)
        chosen = Chosen((zero, one, two), tensors["chunk_weights"], tensors["context"])
        candidates = candidates_in(tensors, tensors["nodes"])
        return cls(int(arrays["first"]), candidates, chosen, tuple(zip(*parts, strict=True)))


def arrays_of_candidates(candidates: Candidates) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file that holds candidates, without their nodes."""
    rows = {f"hop{hop}": ragged for hop, ragged in enumerate(candidates.hops)}
    rows["chunks"] = candidates.chunks
    return {
        f"{name}_{part}": getattr(ragged, part).cpu().numpy()
        for name, ragged in rows.items()
        for part in ("ptr", "index")
    }


def candidates_in(tensors: Mapping[str, Tensor], nodes: Int64[Tensor, "m"]) -> Candidates:
    """Return the candidates of these nodes that `arrays_of_candidates` gave."""
    zero, one, two = (Ragged(tensors[f"hop{hop}_ptr"], tensors[f"hop{hop}_index"]) for hop in HOPS)
    chunks = Ragged(tensors["chunks_ptr"], tensors["chunks_index"])
    return Candidates(nodes, (zero, one, two), chunks)
