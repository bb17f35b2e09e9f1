"""What a client has generated in a run: one file per version in its folder of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_json, write_npz

_LINKS = "links-"


@dataclass(frozen=True)
class Generation:
    """The generated neighbours of a client after some reflections.

    Attributes
    ----------
    version : number of reflections that have passed
    origins : [g] int64, nodes whose neighbours they are
    texts : [g], "" where none was written
    features : [g, d] float32 of norm 1, zeros without a text
    used : [g] bool, whether it is a node of the augmented graph: written, and no duplicate
    links : name of a graph -> [2, l] int64, (number among the used ones, raw node)
    """

    version: int
    origins: Tensor
    texts: Sequence[str]
    features: Tensor
    used: Tensor
    links: Mapping[str, Tensor]


# Per site: what was last read of each file, with its version on disk.
_READ: WeakKeyDictionary[ClientData, dict[Path, tuple[int, Generation]]] = WeakKeyDictionary()


def load_latest(data: ClientData, run: str, most: int) -> Generation | None:
    """Return the latest version up to `most`; None where no file is there and undamaged."""
    versions = (_load(data, _path(data, run, version), version) for version in range(most, -1, -1))
    return next((found for found in versions if found is not None), None)


def save(generation: Generation, data: ClientData, run: str, report: Mapping[str, object]) -> None:
    """Write a version atomically, then `report`, its counts, beside it for its owner to read."""
    path = _path(data, run, generation.version)
    arrays = {
        "origins": generation.origins.cpu().numpy(),
        "texts": np.array(generation.texts, np.str_),
        "features": generation.features.cpu().numpy(),
        "used": generation.used.cpu().numpy(),
    }
    arrays |= {_LINKS + name: ends.cpu().numpy() for name, ends in generation.links.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npz(path, arrays)
    write_json(path.with_suffix(".json"), report)


def _path(data: ClientData, run: str, version: int) -> Path:
    return run_folder(data.folder, run) / f"llm4fgl-{version}.npz"


def _load(data: ClientData, path: Path, version: int) -> Generation | None:
    if not path.is_file():
        return None
    changed, known = path.stat().st_mtime_ns, _READ.setdefault(data, {})
    if path not in known or known[path][0] != changed:
        arrays = read_npz(path)
        if arrays is None:
            return None
        tensors = {
            name: torch.from_numpy(array).to(data.device)
            for name, array in arrays.items()
            if name != "texts"
        }
        links = {
            name.removeprefix(_LINKS): ends
            for name, ends in tensors.items()
            if name.startswith(_LINKS)
        }
        features, used = tensors["features"], tensors["used"]
        texts = arrays["texts"].tolist()
        read = Generation(version, tensors["origins"], texts, features, used, links)
        known[path] = changed, read
    return known[path][1]
