"""`dance-flwr evidence page`: the predictions of a client and their evidence in one HTML file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.api.predicting import Log
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.leave_out import leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.fingerprint import provenance
from dance_flwr.pages.audit_charts import rounds_by_node
from dance_flwr.pages.audit_facts import PackFacts, pack_digests
from dance_flwr.pages.audit_subject import Subject
from dance_flwr.pages.audit_texts import TextBlocks
from dance_flwr.pages.document import Page, check_replaceable
from dance_flwr.pages.node_choice import LOW_MARGIN, RULE, NodeSigns, numbers_of
from dance_flwr.runs.privacy_report import promises
from dance_flwr.seeding import generator
from dance_flwr.terminal import size

PAGE = "audit.html"
_MAX_ROWS = 100_000  # nodes in the table
_CONTROLS = 3  # random passages in place of the marked ones, so many times
# Why (decision 22): nodes and edges that effects may compute again, all packs together. It keeps
# the page of a dense graph usable; the page names the nodes without effects.
_MAX_ENTRIES = 70_000_000
_SPLITS = {NO_SPLIT: "none", TRAIN: "train", VAL: "validation", TEST: "test"}


def write_page(
    subject: Subject, out: Path | None, nodes: Sequence[str], max_packs: int, log: Log
) -> Path:
    """Write the audit page of a client; return its path.

    Parameters
    ----------
    out : None = in the folder that the run left at the client
    nodes : ids of the nodes whose evidence is shown; none = the first `max_packs` by `RULE`

    Raises
    ------
    UserError : a node is not the client's, `out` exists and is no page, or the evidence did not
        verify; then the page is written, and says so
    """
    if out is None and subject.home is None:
        raise UserError("--out: expected the name of the page, found none, and no client's folder")
    path = out or (subject.home or Path()) / PAGE
    page_of = (subject.kind, subject.source, subject.name, subject.explainer.model_id)
    about = json.dumps([*page_of, list(nodes), subject.ids])
    check_replaceable(path, about)
    signs = NodeSigns.of(subject.views, subject.labels)
    chosen = signs.order()[:max_packs]
    if nodes:
        chosen = numbers_of(nodes, subject.ids, subject.name)
    page, done = _page(subject, signs, chosen)
    replace(page, about=about).write(path)
    log(
        f"page        {path}, {size(path.stat().st_size)}: {counted(len(subject.ids), 'node')}, "
        f"evidence of {len(chosen):,}, effects of {done:,}; for its owner alone, as it contains "
        f"source texts of {subject.name}"
    )
    # After the page, which says so, is written.
    if not subject.verification.passed:
        raise UserError(f"{path} says so: not verified: {subject.verification.lines[-1]}")
    return path


def _page(subject: Subject, signs: NodeSigns, chosen: NDArray[np.int64]) -> tuple[Page, int]:
    """Return the page, and how many packs have effects of their text.

    Parameters
    ----------
    chosen : numbers of the nodes whose evidence the page holds
    """
    client_data, seed = subject.client.data, subject.client.config.seed
    packs, stored = _packs(subject, chosen)
    names = [one_line(name, marks=True) for name in client_data.card.class_names]
    digests = pack_digests(packs, subject.ids, client_data.card.class_names)
    # After the digests, which name what the run sealed. A bundle's explainer has calibrated.
    if subject.kind == "run":
        packs = packs.calibrated(subject.calibration)
    # From the seed of the run: a page that is written again has the same controls.
    draws = generator(seed, "page", client=client_data.card.client)
    explainer = replace(subject.explainer, calibration=subject.calibration)
    effects = leave_out(explainer, packs, _CONTROLS, draws, _MAX_ENTRIES)
    blocks = TextBlocks(subject.texts)
    facts = PackFacts(
        packs=packs,
        candidates=subject.explainer.selection(torch.as_tensor(chosen)),
        effects=effects,
        digests=digests,
        edge_spans=client_data.edge_spans,
        ids=subject.ids,
        texts=subject.texts,
        rows=client_data.graph.rows,
        labels=subject.labels,
        class_names=names,
        rounds=rounds_by_node(subject.rounds, packs, names),
        blocks=blocks,
    )
    data = {f"pack-{row}": facts.of(row) for row in range(len(chosen))}
    data |= blocks.data()
    data["index"] = _index(subject, signs, chosen, digests)
    page = Page(
        "audit.html.j2",
        f"Evidence of {subject.name}",
        _header(subject, signs, (len(chosen), stored, len(blocks))),
        data,
        scripts=("audit_list.js", "audit_pack.js", "audit_verdict.js", "audit.js"),
        styles=("audit.css",),
    )
    return page, int(effects.done.sum())


def _packs(subject: Subject, nodes: NDArray[np.int64]) -> tuple[Packs, int]:
    """Return the packs of these nodes in their order, and how many the run had stored."""
    # Why (decision 22): stored packs are shown as stored, so that a verdict is about what the run
    # sealed. Others are computed by the same model.
    stored = subject.stored
    if stored is None:
        return subject.explainer.explain(torch.as_tensor(nodes)), 0
    rows = np.flatnonzero(np.isin(stored.nodes, nodes))
    others = np.setdiff1d(nodes, stored.nodes)
    packs = stored.take(rows)
    if len(others):
        packs = packs.followed_by(subject.explainer.explain(torch.as_tensor(others)))
    place = {int(node): row for row, node in enumerate(packs.nodes)}
    return packs.take(np.array([place[int(node)] for node in nodes], np.int64)), len(rows)


def _index(
    subject: Subject, signs: NodeSigns, chosen: NDArray[np.int64], digests: Sequence[str]
) -> dict[str, Any]:
    """Return what the node table reads of every node, column by column, in the order of `RULE`.

    The nodes whose evidence is shown are always among the rows.
    """
    order, data = signs.order(), subject.client.data
    # -1 = the page has no pack of the node.
    place = np.full(len(order), -1)
    place[chosen] = np.arange(len(chosen))
    listed = np.zeros(len(order), np.bool_)
    listed[order[:_MAX_ROWS]] = listed[chosen] = True
    rows = order[listed[order]]
    return {
        "classes": [one_line(name, marks=True) for name in data.card.class_names],
        "splits": list(_SPLITS.values()),
        "lowMargin": LOW_MARGIN,
        "nodes": len(order),
        "source": {
            "kind": subject.kind,
            "name": subject.source,
            "client": subject.name,
            "model": subject.explainer.model_id,
            "code": provenance(),
        },
        "digests": list(digests),
        "ids": [subject.ids[node] for node in rows],
        "node": rows.tolist(),
        "label": subject.labels[rows].tolist(),
        "predicted": signs.predicted[rows].tolist(),
        "margin": [round(float(m), 4) for m in signs.margin[rows]],
        "disagree": signs.disagree[rows].astype(int).tolist(),
        "split": [list(_SPLITS).index(int(code)) for code in data.split.cpu().numpy()[rows]],
        "pack": place[rows].tolist(),
    }


def _header(subject: Subject, signs: NodeSigns, counts: tuple[int, int, int]) -> Mapping[str, Any]:
    """Return what the template shows beside the evidence.

    Parameters
    ----------
    counts : of packs on the page, of those that the run had stored, and of texts
    """
    record, known = subject.record, subject.labels >= 0
    packs, stored, texts = counts
    accuracy = 1 - float(signs.wrong[known].mean()) if known.any() else None
    return {
        "subject": subject,
        "headline": signs.headline(),
        "name": one_line(subject.name, marks=True),
        "source": one_line(subject.source, marks=True),
        "code_then": str(record.get("provenance", "not recorded")),
        "code_now": provenance(),
        "privacy": [" ".join(line.split()) for line in promises(record)],
        "verification": subject.verification,
        "lines": [one_line(line, marks=True) for line in subject.verification.lines],
        "nodes": len(known),
        "labelled": int(known.sum()),
        "accuracy": accuracy,
        "packs": packs,
        "stored": stored,
        "texts": texts,
        "calibration": str(subject.calibration),
        "rule": RULE,
        "low_margin": LOW_MARGIN,
        "splits": list(_SPLITS.values()),
        "classes": [one_line(c, marks=True) for c in subject.client.data.card.class_names],
        "rows": min(len(known), _MAX_ROWS),
    }
