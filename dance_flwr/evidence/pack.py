"""Evidence packs: what every condensed node was predicted, and the evidence, with source spans.

Packs stay in the client's folder. One file holds all packs of one refresh as arrays.
"""

from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.selection import HOPS, Selection
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.errors import DataError
from dance_flwr.evidence.explanation import Explanation
from dance_flwr.nn.ragged import Ragged, ptr_of_rows, stack_rows

_DIGEST, _FORMAT = "digest", "format"
FORMAT = 2  # 1 had no such entry, and no prediction but that of the fused view


@dataclass(frozen=True)
class Packs:
    """The packs of m nodes.

    Nodes and chunks are numbered locally; chunk numbers are rows of the client's text bank.

    Attributes
    ----------
    round, model_id : round of the selection, and fingerprint of the model that selected
    difficulty_round : round whose model gave u_v, which preselects evidence at hop 2
    nodes : [m] int64
    views, stages, probs, rival, parts : as in `Explanation`. "core", and "deployed" where it needs
        "core", are in final packs only, since they read the predictions of all nodes; so is
        "smoothed", of runs with `smoothing`
    neighbour_ptr : [m + 1]; neighbours, neighbour_hops, neighbour_weights : alpha^(l) of the
        selected neighbours
    neighbour_labels : [E] int64 training label that a neighbour contributed, -1 = none
    neighbour_effects : [E] float32 what that label added to O_{v,c} - O_{v,r}
    chunk_ptr : [m + 1]; chunks, chunk_nodes, chunk_weights : pi of the selected chunks, heaviest
        first
    chunk_spans : [E, 2] int32 characters of the source text; chunk_sha256 : [E, 32] uint8 of the
        span's utf-8 text
    """

    round: int
    model_id: str
    difficulty_round: int
    nodes: NDArray[np.int64]
    views: tuple[str, ...]
    stages: tuple[str, ...]
    probs: NDArray[np.float32]
    rival: NDArray[np.int64]
    parts: NDArray[np.float32]
    neighbour_ptr: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    neighbour_hops: NDArray[np.int64]
    neighbour_weights: NDArray[np.float32]
    neighbour_labels: NDArray[np.int64]
    neighbour_effects: NDArray[np.float32]
    chunk_ptr: NDArray[np.int64]
    chunks: NDArray[np.int64]
    chunk_nodes: NDArray[np.int64]
    chunk_weights: NDArray[np.float32]
    chunk_spans: NDArray[np.int32]
    chunk_sha256: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        data: ClientData,
        explanation: Explanation,
        selection: Selection,
        origin: tuple[int, str, int],
    ) -> "Packs":
        """Gather the packs of `selection.nodes`.

        Parameters
        ----------
        origin : round, model_id and difficulty_round
        """
        # Entries are concatenated hop by hop; a stable sort by row brings those of a node together.
        size = len(selection.nodes)
        entry = torch.cat([gate > 0 for gate in selection.gates])
        rows = torch.cat([ragged.rows() for ragged in selection.hops])[entry]
        order = torch.sort(rows, stable=True).indices
        node = torch.cat([ragged.index for ragged in selection.hops])[entry][order]
        hop = torch.cat([torch.full_like(selection.hops[hop].index, hop) for hop in HOPS])[entry][
            order
        ]
        weight, row = torch.cat(selection.gates)[entry][order], rows[order]
        label = torch.where(hop > 0, data.train_labels[node], -1)
        if explanation.label_gaps is None:
            label = torch.full_like(label, -1)
        chunks, chunk_weights = _heaviest_first(selection.chunks, selection.chunk_weights)
        number = chunks.index.cpu().numpy()
        arrays: dict[str, Tensor] = {
            "nodes": selection.nodes,
            "probs": explanation.probs,
            "rival": explanation.rival,
            "parts": explanation.parts,
            "neighbour_ptr": ptr_of_rows(row, size),
            "neighbours": node,
            "neighbour_hops": hop,
            "neighbour_weights": weight,
            "neighbour_labels": label,
            "neighbour_effects": explanation.label_effects(row, hop, label, weight),
            "chunk_ptr": chunks.ptr,
            "chunks": chunks.index,
            "chunk_nodes": data.table.node_of_chunk[chunks.index],
            "chunk_weights": chunk_weights,
        }
        return cls(
            round=origin[0],
            model_id=origin[1],
            difficulty_round=origin[2],
            views=explanation.views,
            stages=explanation.stages,
            chunk_spans=np.asarray(data.bank.spans[number]),
            chunk_sha256=np.asarray(data.chunk_sha256[number]),
            **{name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()},
        )

    @property
    def decisive(self) -> NDArray[np.float32]:
        """[m, C] probabilities of the last stage that is known: what is deployed, if that is."""
        return self.probs[-1]  # type: ignore[no-any-return]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """[m] class of the last stage."""
        return self.decisive.argmax(axis=1)  # type: ignore[no-any-return]

    @property
    def confidence(self) -> NDArray[np.float32]:
        """[m] probability of that class."""
        return self.decisive.max(axis=1)  # type: ignore[no-any-return]

    @property
    def disagree(self) -> NDArray[np.bool_]:
        """[m] whether some deployed view that is known predicts another class."""
        known = [self.stages.index(view) for view in self.views if view in self.stages]
        return (self.probs[known].argmax(axis=2) != self.predicted).any(axis=0)  # type: ignore[no-any-return]

    def counts(self, data: ClientData) -> dict[str, int]:
        """Return the totals of `Selection.counts` for these packs."""
        tokens = int(data.bank.tokens[self.chunks].sum()) if len(self.chunks) else 0
        return {
            "condensed-nodes": len(self.nodes),
            "evidence-neighbours": int((self.neighbour_hops > 0).sum()),
            "evidence-chunks": len(self.chunks),
            "evidence-tokens": tokens,
        }

    def save(self, path: Path) -> None:
        """Write the packs, the format's number and their digest to one file, atomically."""
        values = {item.name: np.asarray(getattr(self, item.name)) for item in fields(self)}
        write_npz(path, values | {_FORMAT: np.array(FORMAT), _DIGEST: np.array(_digest(values))})

    @classmethod
    def load(cls, path: Path) -> "Packs":
        """Read packs.

        Raises
        ------
        DataError : the file is missing, damaged, altered or of another format
        """
        arrays = read_npz(path)
        if arrays is None:
            state = "a damaged file" if path.is_file() else "no file"
            raise DataError(
                f"{path}: expected evidence packs, found {state}; copy the client's folder again, "
                "or run again"
            )
        if (found := int(arrays.get(_FORMAT, 1))) != FORMAT:
            raise DataError(
                f"{path}: expected evidence packs of format {FORMAT}, found format "
                f"{found}; read them with the version that wrote them, or run again"
            )
        names = [item.name for item in fields(cls)]
        if missing := sorted({*names, _DIGEST} - arrays.keys()):
            raise DataError(
                f"{path}: expected evidence packs with {missing[0]!r}, found none; they were "
                "altered"
            )
        values: dict[str, Any] = {name: arrays[name] for name in names}
        digest = str(arrays[_DIGEST])
        if digest != _digest(values):
            raise DataError(
                f"{path}: expected packs of digest {digest[:12]}, found others; they were altered"
            )
        numbers = {name: int(values[name]) for name in ("round", "difficulty_round")}
        lists = {name: tuple(values[name].tolist()) for name in ("views", "stages")}
        return cls(**values | numbers | lists | {"model_id": str(values["model_id"])})

    def row_of(self, node: int) -> int | None:
        """Return the row of a node, or None if there is no pack for it."""
        matches = np.flatnonzero(self.nodes == node)
        return int(matches[0]) if len(matches) else None

    def take(self, rows: NDArray[np.int64]) -> "Packs":
        """Return these packs ([j] row numbers) in this order."""
        at = {name: self._ragged(name).take(torch.as_tensor(rows)) for name in _ROWS_OF}
        found: dict[str, Any] = {"nodes": self.nodes[rows], "probs": self.probs[:, rows]}
        found |= {"rival": self.rival[rows], "parts": self.parts[rows]}
        for name, of in _ROWS_OF.items():
            found |= {name: at[name].ptr.numpy()}
            found |= {item: getattr(self, item)[at[name].index.numpy()] for item in of}
        return replace(self, **found)

    def followed_by(self, others: "Packs") -> "Packs":
        """Return these packs, then others of the same model and stages."""
        found: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)])
            for name in (
                "nodes",
                "rival",
                "parts",
                *(item for of in _ROWS_OF.values() for item in of),
            )
        }
        found["probs"] = np.concatenate([self.probs, others.probs], axis=1)
        for name in _ROWS_OF:
            found[name] = stack_rows([self._ragged(name), others._ragged(name)]).ptr.numpy()
        return replace(self, **found)

    def _ragged(self, name: str) -> Ragged:
        """Return the places of the entries of each pack; `name` is that of their ptr."""
        ptr = torch.as_tensor(getattr(self, name))
        return Ragged(ptr, torch.arange(int(ptr[-1])))


# The entries of packs by the ptr that says where those of each pack lie.
_ROWS_OF = {
    "neighbour_ptr": (
        *("neighbours", "neighbour_hops", "neighbour_weights"),
        *("neighbour_labels", "neighbour_effects"),
    ),
    "chunk_ptr": ("chunks", "chunk_nodes", "chunk_weights", "chunk_spans", "chunk_sha256"),
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
