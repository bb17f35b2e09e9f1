"""Evidence packs: the evidence of every condensed node's prediction, with exact source spans.

Packs stay in the client's folder. One file holds all packs of one refresh as arrays.
"""

from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.dance.evidence import HOPS, Candidates, Evidence
from dance_flwr.data.site import Site
from dance_flwr.disk import write_npz
from dance_flwr.errors import DataError
from dance_flwr.nn.ragged import Ragged, ptr_of_rows

_DIGEST = "digest"


@dataclass(frozen=True)
class Packs:
    """The packs of m nodes.

    Nodes and chunks are numbered locally; chunk numbers are rows of the client's text bank.

    Attributes
    ----------
    round, model_id : round of the selection, and fingerprint of the model that selected
    difficulty_round : round whose model gave u_v, which preselects evidence at hop 2
    nodes : [m] int64; predicted : [m] int64 class; confidence : [m] float32
    neighbour_ptr : [m + 1]; neighbours, neighbour_hops, neighbour_weights : alpha^(l) of the
        selected neighbours
    chunk_ptr : [m + 1]; chunks, chunk_nodes, chunk_weights : pi of the selected chunks, heaviest
        first
    chunk_spans : [E, 2] int32 characters of the source text; chunk_sha256 : [E, 32] uint8 of the
        span's utf-8 text
    """

    round: int
    model_id: str
    difficulty_round: int
    nodes: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]
    neighbour_ptr: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    neighbour_hops: NDArray[np.int64]
    neighbour_weights: NDArray[np.float32]
    chunk_ptr: NDArray[np.int64]
    chunks: NDArray[np.int64]
    chunk_nodes: NDArray[np.int64]
    chunk_weights: NDArray[np.float32]
    chunk_spans: NDArray[np.int32]
    chunk_sha256: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        site: Site,
        probs: Tensor,
        candidates: Candidates,
        evidence: Evidence,
        round_: int,
        model_id: str,
        difficulty_round: int,
    ) -> "Packs":
        """Gather the packs of `candidates.nodes`.

        Parameters
        ----------
        probs : [m, C] the prediction that rests on the evidence
        """
        confidence, predicted = probs.max(dim=1)
        # Entries are concatenated hop by hop; a stable sort by row brings those of a node together.
        size = len(candidates.nodes)
        entry = torch.cat([gate > 0 for gate in evidence.gates])
        rows = torch.cat([ragged.rows() for ragged in candidates.hops])[entry]
        order = torch.sort(rows, stable=True).indices
        node = torch.cat([ragged.index for ragged in candidates.hops])[entry][order]
        hop = torch.cat([torch.full_like(candidates.hops[hop].index, hop) for hop in HOPS])[entry][
            order
        ]
        weight = torch.cat(evidence.gates)[entry][order]
        chunks, chunk_weights = _heaviest_first(candidates.chunks, evidence.chunk_weights)
        number = chunks.index.cpu().numpy()
        arrays: dict[str, Tensor] = {
            "nodes": candidates.nodes,
            "predicted": predicted,
            "confidence": confidence,
            "neighbour_ptr": ptr_of_rows(rows[order], size),
            "neighbours": node,
            "neighbour_hops": hop,
            "neighbour_weights": weight,
            "chunk_ptr": chunks.ptr,
            "chunks": chunks.index,
            "chunk_nodes": site.table.node_of_chunk[chunks.index],
            "chunk_weights": chunk_weights,
        }
        return cls(
            round=round_,
            model_id=model_id,
            difficulty_round=difficulty_round,
            chunk_spans=np.asarray(site.bank.spans[number]),
            chunk_sha256=np.asarray(site.chunk_sha256[number]),
            **{name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()},
        )

    def counts(self, site: Site) -> dict[str, int]:
        """Return the totals of `count_evidence` for these packs."""
        return _totals(site, len(self.nodes), int((self.neighbour_hops > 0).sum()), self.chunks)

    def save(self, path: Path) -> None:
        """Write the packs and their digest to one file, atomically."""
        values = {item.name: np.asarray(getattr(self, item.name)) for item in fields(self)}
        write_npz(path, values | {_DIGEST: np.array(_digest(values))})

    @classmethod
    def load(cls, path: Path) -> "Packs":
        """Read packs.

        Raises
        ------
        DataError : the file is missing, damaged or altered
        """
        try:
            with np.load(path) as file:
                values: dict[str, Any] = {item.name: file[item.name] for item in fields(cls)}
                digest = str(file[_DIGEST])
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise DataError(
                f"{path}: expected evidence packs, found {error}; the file was damaged or altered"
            ) from None
        if digest != _digest(values):
            raise DataError(
                f"{path}: expected packs of digest {digest[:12]}, found others; they were altered"
            )
        numbers = {name: int(values[name]) for name in ("round", "difficulty_round")}
        return cls(**values | numbers | {"model_id": str(values["model_id"])})

    def row_of(self, node: int) -> int | None:
        """Return the row of a node, or None if there is no pack for it."""
        matches = np.flatnonzero(self.nodes == node)
        return int(matches[0]) if len(matches) else None


def count_evidence(site: Site, candidates: Candidates, evidence: Evidence) -> dict[str, int]:
    """Return totals over `candidates.nodes`: nodes, neighbours, chunks, tokens.

    A node is not its own neighbour here.
    """
    neighbours = sum(int((gate > 0).sum()) for gate in evidence.gates[1:])
    chunks = candidates.chunks.index[evidence.chunk_weights > 0].cpu().numpy()
    return _totals(site, candidates.nodes.numel(), neighbours, chunks)


def _totals(site: Site, nodes: int, neighbours: int, chunks: NDArray[np.int64]) -> dict[str, int]:
    tokens = int(site.bank.tokens[chunks].sum()) if len(chunks) else 0
    return {
        "condensed-nodes": nodes,
        "evidence-neighbours": neighbours,
        "evidence-chunks": len(chunks),
        "evidence-tokens": tokens,
    }


def _digest(values: dict[str, NDArray[Any]]) -> str:
    """Return the sha256 hex digest of names, types and bytes of all arrays."""
    digest = sha256()
    for name, array in sorted(values.items()):
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode() + array.tobytes())
    return digest.hexdigest()


def _heaviest_first(chunks: Ragged, weights: Tensor) -> tuple[Ragged, Tensor]:
    """Return the selected chunks of every row by descending weight, and their weights."""
    chosen = weights > 0
    selected, weight = chunks.keep(chosen), weights[chosen]
    by_weight = torch.sort(weight, descending=True, stable=True).indices
    order = by_weight[torch.sort(selected.rows()[by_weight], stable=True).indices]
    return Ragged(selected.ptr, selected.index[order]), weight[order]
