"""Evidence packs: the prediction of each condensed node, and its evidence with source spans.

Packs stay in the client's folder. One file holds all packs of one refresh as arrays.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.dance.inference import DEPLOYED
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.errors import DataError
from dance_flwr.nn.calibration import Calibration
from dance_flwr.nn.ragged import Ragged, stack_rows

PARTS = ("constant", "prior", "graph", "text", "labels")
FUSED, SMOOTHED, PERSONAL = "fused", "smoothed", "personal"
OWN = ("alone", "tuned")  # kinds of a client's own model, of which packs have the deployed one
# In the order of their computation: the last stage that is known is what the client deploys, if the
# packs of a round can know that at all.
STAGES = ("plain", "core", FUSED, DEPLOYED, SMOOTHED, *OWN, PERSONAL)

_DIGEST, _FORMAT = "digest", "format"
# A file without this entry has format 1, which held the prediction of the fused view alone.
FORMAT = 4


@dataclass(frozen=True)
class Packs:
    """The packs of m nodes.

    Nodes and chunks are numbered locally; chunk numbers are rows of the client's text bank.

    Attributes
    ----------
    round, model_id : round of the selection, and fingerprint of the model that selected
    difficulty_round : round whose model gave u_v, which preselects evidence at hop 2
    nodes : [m] int64
    views : names of the views that "deployed" averages
    stages : names of the known stages of the prediction, in the order of `STAGES`. "fused" is
        always among them, since it alone rests on the evidence. "core", and "deployed" where it
        needs "core", are in final packs only, since they read the predictions of all nodes; so is
        "smoothed", of runs with `smoothing`, and so are "alone" or "tuned", the client's own model
        without evidence of its own, and "personal", its mixture with what the global model says
    own_share : lambda of that mixture; 0 without an own model
    probs : [P, m, C] class probabilities by stage
    temperature : T by which the last stage was calibrated; 1 = it was not
    parts : [m, 5, C] summands of the logits of the stage "fused", by `PARTS`
    neighbour_ptr : [m + 1]; neighbours, neighbour_hops, neighbour_weights : alpha^(l) of the
        selected neighbours
    neighbour_labels : [E] int64 training label that a neighbour contributed, -1 = none
    neighbour_label_logits : [E, C] float32 what that label added to the part "labels"
    neighbour_text_logits : [E, C] float32 what the neighbour's whole text added to the part "text",
        by the context c_v
    chunk_ptr : [m + 1]; chunks, chunk_nodes, chunk_weights : pi of the selected chunks, heaviest
        first
    chunk_logits : [E, C] float32 what a chunk added to the part "text"
    chunk_spans : [E, 2] int32 characters of the source text; chunk_sha256 : [E, 32] uint8 of the
        span's utf-8 text
    """

    round: int
    model_id: str
    difficulty_round: int
    nodes: NDArray[np.int64]
    views: tuple[str, ...]
    stages: tuple[str, ...]
    own_share: float
    temperature: float
    probs: NDArray[np.float32]
    parts: NDArray[np.float32]
    neighbour_ptr: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    neighbour_hops: NDArray[np.int64]
    neighbour_weights: NDArray[np.float32]
    neighbour_labels: NDArray[np.int64]
    neighbour_label_logits: NDArray[np.float32]
    neighbour_text_logits: NDArray[np.float32]
    chunk_ptr: NDArray[np.int64]
    chunks: NDArray[np.int64]
    chunk_nodes: NDArray[np.int64]
    chunk_weights: NDArray[np.float32]
    chunk_logits: NDArray[np.float32]
    chunk_spans: NDArray[np.int32]
    chunk_sha256: NDArray[np.uint8]

    @property
    def decisive(self) -> NDArray[np.float32]:
        """[m, C] probabilities of the last known stage, the deployed one if that is known."""
        return self.probs[-1]  # type: ignore[no-any-return]

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """[m] class of the last stage."""
        return self.decisive.argmax(axis=1)  # type: ignore[no-any-return]

    @cached_property
    def rival(self) -> NDArray[np.int64]:
        """[m] second class of the last stage; the same as the first where there is one alone."""
        rest = self.decisive.copy()
        np.put_along_axis(rest, self.predicted[:, None], -np.inf, axis=1)
        return rest.argmax(axis=1)  # type: ignore[no-any-return]

    @cached_property
    def confidence(self) -> NDArray[np.float32]:
        """[m] probability of that class."""
        return self.decisive.max(axis=1)  # type: ignore[no-any-return]

    @cached_property
    def disagree(self) -> NDArray[np.bool_]:
        """[m] whether some deployed view that is known predicts another class."""
        # Packs of a training round do not know the view "core".
        known = [self.stages.index(view) for view in self.views if view in self.stages]
        return (self.probs[known].argmax(axis=2) != self.predicted).any(axis=0)  # type: ignore[no-any-return]

    def calibrated(self, calibration: Calibration) -> "Packs":
        """Return the packs with calibrated probabilities of the last stage, for those who read.

        What a run seals is not calibrated, as its temperature follows from what all clients deploy.
        """
        last = calibration.apply(torch.as_tensor(self.probs[-1:])).numpy()
        probs = np.concatenate([self.probs[:-1], last.astype(np.float32)])
        return replace(self, probs=probs, temperature=calibration.temperature)

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
        # The format first, as files of another one have other arrays.
        if (number := int(arrays.get(_FORMAT, 1))) != FORMAT:
            raise DataError(
                f"{path}: expected evidence packs of format {FORMAT}, found format "
                f"{number}; read them with the version that wrote them, or run again"
            )
        names = [item.name for item in fields(cls)]
        if missing := sorted({*names, _DIGEST} - arrays.keys()):
            raise DataError(
                f"{path}: expected evidence packs with {missing[0]!r}, found none; they were "
                "altered"
            )
        values: dict[str, Any] = {name: arrays[name] for name in names}
        digest = str(arrays[_DIGEST])
        # Why only against damage (decision 20): whoever alters packs can compute their digest
        # again; the seal of the run is what they cannot change.
        if digest != _digest(values):
            raise DataError(
                f"{path}: expected packs of digest {digest[:12]}, found others; they were altered"
            )
        numbers: dict[str, Any] = {n: int(values[n]) for n in ("round", "difficulty_round")}
        numbers |= {name: float(values[name]) for name in ("own_share", "temperature")}
        lists = {name: tuple(values[name].tolist()) for name in ("views", "stages")}
        return cls(**values | numbers | lists | {"model_id": str(values["model_id"])})

    def row_of(self, node: int) -> int | None:
        """Return the row of a node, or None if there is no pack for it."""
        matches = np.flatnonzero(self.nodes == node)
        return int(matches[0]) if len(matches) else None

    def take(self, rows: NDArray[np.int64]) -> "Packs":
        """Return these packs ([j] row numbers) in this order."""
        columns: dict[str, Any] = {"nodes": self.nodes[rows], "probs": self.probs[:, rows]}
        columns["parts"] = self.parts[rows]
        for ptr, names in _ENTRIES_OF.items():
            places = self._places(ptr).take(torch.as_tensor(rows))
            columns[ptr] = places.ptr.numpy()
            columns |= {name: getattr(self, name)[places.index.numpy()] for name in names}
        return replace(self, **columns)

    def followed_by(self, others: "Packs") -> "Packs":
        """Return these packs, then others of the same model and stages."""
        entries = [name for names in _ENTRIES_OF.values() for name in names]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)])
            for name in ("nodes", "parts", *entries)
        }
        columns["probs"] = np.concatenate([self.probs, others.probs], axis=1)
        for ptr in _ENTRIES_OF:
            columns[ptr] = stack_rows([self._places(ptr), others._places(ptr)]).ptr.numpy()
        return replace(self, **columns)

    def neighbours_of(self, row: int) -> slice:
        """Return where the selected neighbours of a pack are in the arrays of neighbours."""
        return slice(int(self.neighbour_ptr[row]), int(self.neighbour_ptr[row + 1]))

    def chunks_of(self, row: int) -> slice:
        """Return where the selected chunks of a pack are in the arrays of chunks."""
        return slice(int(self.chunk_ptr[row]), int(self.chunk_ptr[row + 1]))

    def _places(self, name: str) -> Ragged:
        # Places instead of entries: one `take` serves all arrays of a ptr.
        ptr = torch.as_tensor(getattr(self, name))
        return Ragged(ptr, torch.arange(int(ptr[-1])))


# Arrays with an entry per neighbour or chunk, by the ptr that says where those of each pack are.
_ENTRIES_OF = {
    "neighbour_ptr": (
        *("neighbours", "neighbour_hops", "neighbour_weights"),
        *("neighbour_labels", "neighbour_label_logits", "neighbour_text_logits"),
    ),
    "chunk_ptr": (
        *("chunks", "chunk_nodes", "chunk_weights"),
        *("chunk_logits", "chunk_spans", "chunk_sha256"),
    ),
}


def _digest(values: dict[str, NDArray[Any]]) -> str:
    digest = sha256()
    for name, array in sorted(values.items()):
        # Names, types and shapes too: equal bytes may be other numbers.
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode() + array.tobytes())
    return digest.hexdigest()
