"""`dance-flwr evidence page`: one file with the predictions of a client and what they rest on."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.api.prediction.bundle import FACTS
from dance_flwr.config.paths import RESULT
from dance_flwr.data.client_folder import Say
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.errors import UserError
from dance_flwr.escaping import one_line
from dance_flwr.evidence.metrics.leave_out import leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.fingerprint import provenance
from dance_flwr.pages.audit_facts import PackFacts, pack_digests
from dance_flwr.pages.audit_rounds import appearances
from dance_flwr.pages.audit_subject import Subject, of_bundle, of_run
from dance_flwr.pages.audit_texts import TextBlocks
from dance_flwr.pages.document import Page, check_replaceable
from dance_flwr.pages.node_choice import LOW_MARGIN, RULE, Outlook, named
from dance_flwr.runs.privacy_report import promises
from dance_flwr.runs.units import size
from dance_flwr.seeding import generator

PAGE = "audit.html"
MOST = 200  # packs
_ROWS = 100_000  # nodes in the table
_CONTROLS = 3  # per hop of a pack
_ENTRIES = 70_000_000  # nodes and edges that what-if may compute again, all packs together
_SPLITS = {NO_SPLIT: "none", TRAIN: "train", VAL: "validation", TEST: "test"}


def opened(
    source: Path,
    client: int,
    client_folder: Path | None,
    data: str | None,
    encode: int,
    say: Say,
) -> AbstractContextManager[Subject]:
    """Open a client of a run, or data under the model of a bundle.

    Raises
    ------
    UserError : `source` is neither, or `data` goes with the other
    """
    if (source / FACTS).is_file():
        if data is None:
            raise UserError(
                "--data: expected the folder of a graph or of a client beside a bundle, found none"
            )
        return of_bundle(source, data, say)
    if data is not None:
        raise UserError(
            f"--data: expected a bundle, which `dance-flwr export` writes, found {source}; "
            "leave --data out for the clients of a run"
        )
    if not (source / RESULT).is_file():
        raise UserError(
            f"expected the folder of a finished run or a bundle, found no {RESULT} and no {FACTS} "
            f"in {source}"
        )
    return of_run(source, client, client_folder, encode, say)


def write_page(
    subject: Subject, out: Path | None, nodes: Sequence[str], most: int, say: Say
) -> Path:
    """Write the audit page of a client; return its path.

    Parameters
    ----------
    out : None = in the folder that the run left at the client
    nodes : ids of the nodes whose evidence is shown; none = those most worth a look
    most : how many those are

    Raises
    ------
    UserError : a node is not the client's, `out` is there and no page, or what the page shows did
        not verify; then it is written, and says so
    """
    if out is None and subject.home is None:
        raise UserError("--out: expected the name of the page, found none, and no client's folder")
    path = out or (subject.home or Path()) / PAGE
    check_replaceable(path)
    outlook = Outlook.of(subject.views, subject.labels)
    order = outlook.order()
    wanted = named(nodes, subject.ids, subject.name) if nodes else order[:most]
    page, done = _page(subject, outlook, order, wanted)
    page.write(path)
    say(
        f"page        {path}, {size(path.stat().st_size)}: {len(subject.ids):,} nodes, "
        f"evidence of {len(wanted):,}, what-if of {done:,}; for its owner alone, as it contains "
        f"source texts of {subject.name}"
    )
    if not subject.verification.passed:
        raise UserError(f"{path} says so: not verified: {subject.verification.lines[-1]}")
    return path


def _page(
    subject: Subject, outlook: Outlook, order: NDArray[np.int64], wanted: NDArray[np.int64]
) -> tuple[Page, int]:
    """Return the page, and how many packs have a what-if."""
    client_data, nodes = subject.client.data, torch.as_tensor(wanted)
    packs, stored = _packs(subject, wanted)
    names = [one_line(name, marks=True) for name in client_data.card.class_names]
    digests = pack_digests(packs, subject.ids, client_data.card.class_names)
    draws = generator(subject.client.config.seed, "page", client=client_data.card.client)
    left_out = leave_out(
        subject.model, client_data, subject.settings, packs, _CONTROLS, draws, _ENTRIES
    )
    blocks = TextBlocks(subject.texts)
    facts = PackFacts(
        packs=packs,
        candidates=subject.considered(nodes),
        left_out=left_out,
        digests=digests,
        ids=subject.ids,
        texts=subject.texts,
        rows=client_data.graph.rows,
        labels=subject.labels,
        class_names=names,
        appearances=appearances(subject.rounds, packs),
        blocks=blocks,
    )
    data = {f"pack-{row}": facts.of(row) for row in range(len(wanted))}
    data |= blocks.data()
    data["index"] = _index(subject, outlook, order, wanted, names, digests)
    page = Page(
        "audit.html.j2",
        f"Evidence of {subject.name}",
        _header(subject, len(wanted), stored, len(blocks)),
        data,
        scripts=("audit_list.js", "audit_pack.js", "audit_verdict.js", "audit.js"),
        styles=("audit.css",),
    )
    return page, int(left_out.done.sum())


def _packs(subject: Subject, nodes: NDArray[np.int64]) -> tuple[Packs, int]:
    """Return the packs of these nodes in their order, and how many the run had stored.

    What was stored is shown as it is; others are computed by the same model.
    """
    stored = subject.stored
    if stored is None:
        return subject.packs(torch.as_tensor(nodes)), 0
    kept = np.flatnonzero(np.isin(stored.nodes, nodes))
    rest = np.setdiff1d(nodes, stored.nodes)
    packs = stored.take(kept)
    if len(rest):
        packs = packs.followed_by(subject.packs(torch.as_tensor(rest)))
    place = {int(node): row for row, node in enumerate(packs.nodes)}
    return packs.take(np.array([place[int(node)] for node in nodes], np.int64)), len(kept)


def _index(
    subject: Subject,
    outlook: Outlook,
    order: NDArray[np.int64],
    wanted: NDArray[np.int64],
    names: Sequence[str],
    digests: Sequence[str],
) -> dict[str, Any]:
    """Return what the node table reads of every node, column by column, most worth a look first.

    The nodes whose evidence the page has are among the rows, however many others are left out.
    """
    place = np.full(len(order), -1)
    place[wanted] = np.arange(len(wanted))
    kept = np.zeros(len(order), np.bool_)
    kept[order[:_ROWS]] = kept[wanted] = True
    rows = order[kept[order]]
    split = subject.client.data.split.cpu().numpy()
    return {
        "classes": list(names),
        "splits": list(_SPLITS.values()),
        "lowMargin": LOW_MARGIN,
        "nodes": len(order),
        "source": {
            "kind": subject.kind,
            "name": subject.source,
            "client": subject.name,
            "model": subject.model_id,
            "code": provenance(),
        },
        "digests": list(digests),
        "ids": [subject.ids[node] for node in rows],
        "node": rows.tolist(),
        "label": subject.labels[rows].tolist(),
        "predicted": outlook.predicted[rows].tolist(),
        "margin": [round(float(m), 4) for m in outlook.margin[rows]],
        "disagree": outlook.disagree[rows].astype(int).tolist(),
        "split": [list(_SPLITS).index(int(code)) for code in split[rows]],
        "pack": place[rows].tolist(),
    }


def _header(subject: Subject, packs: int, stored: int, texts: int) -> Mapping[str, Any]:
    """Return what the template shows above the node table."""
    record, known = subject.record, subject.labels >= 0
    predicted = subject.views["deployed"].argmax(axis=1)
    accuracy = float((predicted == subject.labels)[known].mean()) if known.any() else None
    return {
        "subject": subject,
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
        "rule": RULE,
        "low_margin": LOW_MARGIN,
        "splits": list(_SPLITS.values()),
        "classes": [one_line(c, marks=True) for c in subject.client.data.card.class_names],
        "shown": min(len(known), _ROWS),
        "controls": _CONTROLS,
    }
