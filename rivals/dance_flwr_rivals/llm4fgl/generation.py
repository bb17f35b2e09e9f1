"""Generate neighbours as text, encode them, drop duplicates, link them; rewrite the poorest.

One file per version in the client's folder of the run holds what was generated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.llm.session import embedder
from dance_flwr.methods.server_side import entries_under
from dance_flwr_rivals.llm4fgl import Llm4FglConfig
from dance_flwr_rivals.llm4fgl.predictor import EdgePredictor, link
from dance_flwr_rivals.llm4fgl.writing import Task, Writer, origins_of
from dance_flwr_rivals.refined_graph import graphs_of

_LINKS = "links-"


@dataclass(frozen=True, eq=False)
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


def load_latest(data: ClientData, run: str, version: int) -> Generation | None:
    """Return the latest version up to `version`; None if there is no undamaged file."""
    # An older version serves if the last one is missing or damaged: its texts cost calls.
    for number in range(version, -1, -1):
        path = _path(data, run, number)
        if path.is_file():
            changed = path.stat().st_mtime_ns
            generation = data.cached(str(path), changed, partial(_read, data, path, number))
            if generation is not None:
                return generation
    return None


def save(generation: Generation, data: ClientData, run: str) -> None:
    """Write a version atomically."""
    arrays = {
        "origins": generation.origins.cpu().numpy(),
        "texts": np.array(generation.texts, np.str_),
        "features": generation.features.cpu().numpy(),
        "used": generation.used.cpu().numpy(),
    }
    arrays |= {_LINKS + name: ends.cpu().numpy() for name, ends in generation.links.items()}
    write_npz(_path(data, run, generation.version), arrays)


def _path(data: ClientData, run: str, version: int) -> Path:
    return run_folder(data.folder, run) / f"llm4fgl-{version}.npz"


def _read(data: ClientData, path: Path, version: int) -> Generation | None:
    arrays = read_npz(path)
    if arrays is None:
        return None
    texts = arrays.pop("texts").tolist()
    tensors = {name: torch.from_numpy(array).to(data.device) for name, array in arrays.items()}
    links = entries_under(tensors, _LINKS)
    return Generation(
        version, tensors["origins"], texts, tensors["features"], tensors["used"], links
    )


@dataclass(frozen=True)
class Place:
    """A client in a run, with the writer of its method."""

    data: ClientData
    config: RunConfig
    run: str
    writer: Writer


def generate(predictor: EdgePredictor, at: Place) -> Generation:
    """Write, encode and link the first neighbours of a client; version 0."""
    origins = origins_of(at.data, Llm4FglConfig.of(at.config).ratio_of_nodes)
    texts = at.writer(Task(origins), at.data, at.config, at.run)
    features = at.data.features.new_zeros(len(texts), at.data.text_dim)
    changed = torch.ones(len(texts), dtype=torch.bool, device=features.device)
    return _finished(predictor, at, Generation(0, origins, texts, features, changed, {}), changed)


def rewrite(
    predictor: EdgePredictor, at: Place, last: Generation, poor: Tensor, version: int
) -> Generation:
    """Write the poor texts anew; a text without a usable reply is unchanged."""
    chosen = poor.tolist()
    task = Task(last.origins[poor], [last.texts[i] for i in chosen], version)
    texts, changed = list(last.texts), torch.zeros_like(last.used)
    for place, text in zip(chosen, at.writer(task, at.data, at.config, at.run), strict=True):
        # A call without an answer leaves the draft.
        if text:
            texts[place] = text
            changed[place] = True
    new = Generation(version, last.origins, texts, last.features, last.used, {})
    return _finished(predictor, at, new, changed)


def poorest(quality: Tensor, texts: Sequence[str], ratio: float) -> Tensor:
    """Return the numbers of the share of texts of lowest quality, ascending; [m] int64.

    Parameters
    ----------
    quality : [g]; ties go to the lower number
    texts : [g]; empty ones are ignored
    """
    is_written = torch.tensor([bool(text) for text in texts], device=quality.device)
    written = torch.nonzero(is_written).flatten()
    order = torch.sort(quality[written], stable=True).indices
    # Of the texts that were written: nodes without one have nothing to improve.
    return written[order[: round(ratio * len(written))]].sort().values


def _finished(
    predictor: EdgePredictor, at: Place, draft: Generation, changed: Tensor
) -> Generation:
    """Encode the changed texts, drop duplicates, link all and write the version.

    A text and that of its node are both encoded as one text for the comparison, since features of
    nodes are pooled from chunks, and a copy of a long text would not be close to them.
    """
    settings, data = Llm4FglConfig.of(at.config), at.data
    unit = F.normalize(data.features, dim=1)
    features, used = draft.features.clone(), draft.used.clone()
    # A changed text has to pass the check for duplicates again.
    used[changed] = False
    places = [place for place in torch.nonzero(changed).flatten().tolist() if draft.texts[place]]
    if places:
        texts = data.texts()
        originals = [texts[node] for node in draft.origins[places].tolist()]
        rows = embedder(data)([*(draft.texts[place] for place in places), *originals])
        encoded = F.normalize(torch.as_tensor(rows, dtype=torch.float32), dim=1)
        new, papers = (part.to(features.device) for part in torch.split(encoded, len(places)))
        features[places] = new
        used[places] = (new * papers).sum(dim=1) <= settings.duplicate_cosine
    links = {
        # All texts are linked anew: links are numbered among the used ones, which may have changed.
        name: link(predictor, features[used], unit, graph.visible, settings)
        for name, graph in graphs_of(data).items()
    }
    made = Generation(draft.version, draft.origins, draft.texts, features, used, links)
    save(made, data, at.run)
    message = (
        f"client {data.card.client}: {int(used.sum())} generated nodes, version {made.version}"
    )
    events.emit("neighbours_generated", message, client=data.card.client)
    return made
