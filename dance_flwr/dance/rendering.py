"""Evidence packs as text: predictions, gates, and source texts with their selected spans marked."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from dance_flwr.dance.packs import Packs
from dance_flwr.dance.state import RunFolder
from dance_flwr.dance.summaries import ExtractiveSummariser, Summariser
from dance_flwr.data.site import Site
from dance_flwr.disk import atomic_file


def render(site: Site, packs: Packs, row: int, summariser: Summariser | None = None) -> str:
    """Return one pack as text.

    It shows the prediction, the gates by hop, and every source text with its spans in ⟦ ⟧.
    """
    ids, texts = site.ids(), site.texts()
    near = slice(packs.neighbour_ptr[row], packs.neighbour_ptr[row + 1])
    far = slice(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
    spans: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for node, (start, end), weight in zip(
        packs.chunk_nodes[far], packs.chunk_spans[far], packs.chunk_weights[far], strict=True
    ):
        spans[int(node)].append((int(start), int(end), float(weight)))
    chunks = [texts[node][start:end] for node in spans for start, end, _ in spans[node]]
    weights = [weight for node in spans for _, _, weight in spans[node]]
    summary = (summariser or ExtractiveSummariser()).summarise(chunks, weights)
    label, known = site.card.class_names[packs.predicted[row]], site.train_labels.tolist()
    lines = [
        f"Evidence pack of node {ids[packs.nodes[row]]!r}, "
        f"client {site.card.client}, round {packs.round}",
        f"model       {packs.model_id}",
        f"prediction  {label} (confidence {packs.confidence[row]:.3f})",
        f"summary     {summary}",
        "",
        "source texts, selected spans marked ⟦weight: text⟧",
    ]
    for node, hop, gate in zip(
        packs.neighbours[near],
        packs.neighbour_hops[near],
        packs.neighbour_weights[near],
        strict=True,
    ):
        label_note = (
            f"  training label {site.card.class_names[known[node]]}"
            if hop and known[node] >= 0
            else ""
        )
        lines += [
            "",
            f"hop {hop}  gate {gate:.3f}  node {ids[node]!r}{label_note}",
            _marked(texts[node], spans[int(node)]),
        ]
    return "\n".join(lines) + "\n"


def _marked(text: str, spans: list[tuple[int, int, float]]) -> str:
    """Return `text` with each span wrapped; the text itself is not changed."""
    parts, at = [], 0
    for start, end, weight in sorted(spans):
        parts += [text[at:start], f"⟦{weight:.3f}: {text[start:end]}⟧"]
        at = end
    return "".join([*parts, text[at:]])


def example_row(packs: Packs) -> int:
    """Return the row of the most confident pack that has a neighbour, if any, else of any."""
    return int(np.argmax(packs.confidence + (np.diff(packs.neighbour_ptr) > 1)))


def write_example(store: RunFolder, site: Site, packs: Packs) -> Path | None:
    """Write one pack as text to the client's folder; return the file, None if there is no pack."""
    if not len(packs.nodes):
        return None
    path = store.evidence_folder / "example.txt"
    with atomic_file(path) as file:
        file.write(render(site, packs, example_row(packs)).encode())
    return path
