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
from dance_flwr.disk import read_npz, write_json, write_npz
from dance_flwr.llm.session import embedder
from dance_flwr.methods.server_side import entries_under
from dance_flwr.seeding import generator
from dance_flwr_rivals.llm4fgl import Llm4FglConfig
from dance_flwr_rivals.llm4fgl.predictor import EdgePredictor, LocalPairs, held_out_auc, link
from dance_flwr_rivals.llm4fgl.writing import Task, Writer, origins_of
from dance_flwr_rivals.refined_graph import TRAINING, WHOLE, graphs_of

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


def save(generation: Generation, data: ClientData, run: str, report: Mapping[str, object]) -> None:
    """Write a version atomically, then its counts in `report` beside it."""
    path = _path(data, run, generation.version)
    arrays = {
        "origins": generation.origins.cpu().numpy(),
        "texts": np.array(generation.texts, np.str_),
        "features": generation.features.cpu().numpy(),
        "used": generation.used.cpu().numpy(),
    }
    arrays |= {_LINKS + name: ends.cpu().numpy() for name, ends in generation.links.items()}
    write_npz(path, arrays)
    # After the arrays: a version without a report is complete, a report without one is not.
    write_json(path.with_suffix(".json"), report)


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
    texts = at.writer.write(Task(origins), at.data, at.config, at.run)
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
    for place, text in zip(chosen, at.writer.write(task, at.data, at.config, at.run), strict=True):
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
    """Encode the changed texts, drop duplicates, link all, write the version and report on it."""
    settings, data = Llm4FglConfig.of(at.config), at.data
    unit = F.normalize(data.features, dim=1)
    features, used = _encoded(draft, changed, at)
    links = {
        # All texts are linked anew: links are numbered among the used ones, which may have changed.
        name: link(predictor, features[used], unit, graph.visible, settings)
        for name, graph in graphs_of(data).items()
    }
    new = Generation(draft.version, draft.origins, draft.texts, features, used, links)
    seed, client = at.config.seed, data.card.client
    pairs = LocalPairs(data.training_graph, seed, client)
    auc = held_out_auc(predictor, unit, pairs, generator(seed, "auc", client=client))
    report = _report(new, changed) | {"held_out_auc": auc}
    save(new, data, at.run, report)
    message = f"client {data.card.client}: {int(used.sum())} generated nodes, version {new.version}"
    events.emit("neighbours_generated", message, client=data.card.client)
    return new


def _encoded(draft: Generation, changed: Tensor, at: Place) -> tuple[Tensor, Tensor]:
    """Return `features` and `used`, computed anew for changed texts; [g, d] and [g] bool.

    A text and that of its node are both encoded as one text for the comparison, since features of
    nodes are pooled from chunks, and a copy of a long text would not be close to them.
    """
    features, used = draft.features.clone(), draft.used.clone()
    # A changed text has to pass the check for duplicates again.
    used[changed] = False
    places = [place for place in torch.nonzero(changed).flatten().tolist() if draft.texts[place]]
    if places:
        texts, origins = at.data.texts(), draft.origins[places].tolist()
        originals = [texts[node] for node in origins]
        rows = embedder(at.data)([*(draft.texts[place] for place in places), *originals])
        unit = F.normalize(torch.as_tensor(rows, dtype=torch.float32), dim=1)
        new, papers = (part.to(features.device) for part in torch.split(unit, len(places)))
        limit = Llm4FglConfig.of(at.config).duplicate_cosine
        features[places], used[places] = new, (new * papers).sum(dim=1) <= limit
    return features, used


def _report(new: Generation, changed: Tensor) -> dict[str, object]:
    """Return the counts of a version; generated nodes without links are counted as used."""
    links = new.links[TRAINING if TRAINING in new.links else WHOLE]
    linked = int((torch.bincount(links[0]) > 0).sum())
    texts = sum(map(bool, new.texts))
    return {
        "version": new.version,
        "nodes_with_a_task": len(new.texts),
        "texts": texts,
        "texts_written_anew": int(changed.sum()) if new.version else 0,
        "duplicates_dropped": texts - int(new.used.sum()),
        "generated_nodes": int(new.used.sum()),
        "generated_nodes_with_links": linked,
        "links": links.size(1),
    }
