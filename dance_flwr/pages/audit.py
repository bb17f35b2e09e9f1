"""`dance-flwr evidence page`: the predictions of a client and their evidence in one HTML file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dance_flwr.api.bundle import Bundle
from dance_flwr.api.inputs import rows_of
from dance_flwr.api.predicting import Log, bundle_explainer, known_labels, open_data
from dance_flwr.data.card import CARD
from dance_flwr.data.graphs.graph import NO_SPLIT, TEST, TRAIN, VAL
from dance_flwr.errors import UserError, counted
from dance_flwr.escaping import one_line
from dance_flwr.evidence.explain import Explainer
from dance_flwr.evidence.leave_out import leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.verify import verify_sources
from dance_flwr.federation.client.client import Client
from dance_flwr.fingerprint import provenance
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.calibration import Calibration
from dance_flwr.pages.audit_pack import LOW_MARGIN, PackFacts, Reliability, pack_digests
from dance_flwr.pages.document import Page, check_replaceable, in_blocks
from dance_flwr.runs.evidence import FinishedRun, verify_evidence
from dance_flwr.runs.privacy_report import promises
from dance_flwr.seeding import generator
from dance_flwr.terminal import size

PAGE = "audit.html"
_MAX_ROWS = 100_000  # nodes in the table
_TITLE = 60  # characters of a text that name its node
_CONTROLS = 3  # random passages in place of the marked ones, so many times
# Why (decision 22): nodes and edges that effects may compute again, all packs together. It keeps
# the page of a dense graph usable; the page names the nodes without effects.
_MAX_ENTRIES = 30_000_000
_SPLITS = {NO_SPLIT: "none", TRAIN: "train", VAL: "validation", TEST: "test"}
RULE = (
    "Nodes with more of three signs come first: the label is another class, the readings disagree, "
    f"the lead over the second class is below {LOW_MARGIN:g} (barely). Then the smaller lead."
)


@dataclass(frozen=True)
class Verification:
    """The result of verifying the evidence before the page is written.

    Attributes
    ----------
    passed : whether everything agreed
    lines : what was compared, and at the end what did not agree
    at : time in UTC; seconds : duration
    """

    passed: bool
    lines: Sequence[str]
    at: datetime
    seconds: float


@dataclass(frozen=True)
class Subject:
    """The data of one client and the model that predicts them.

    Attributes
    ----------
    client : the data, with the model loaded; name : name of the client on the page
    explainer : explains this model's predictions of these data
    kind : "run" or "bundle"; source : name of the run, or of the bundle's folder
    record : content of `result.json` or `bundle.json`
    labels : [n] int64, -1 = unknown
    stored : packs of this model that the run kept; None = it kept none
    home : default folder of the page; None = there is none
    verify : verifies the evidence
    """

    client: Client
    explainer: Explainer
    name: str
    kind: str
    source: str
    record: Mapping[str, Any]
    labels: NDArray[np.int64]
    stored: Packs | None
    home: Path | None
    verify: Callable[[], Verification]

    @cached_property
    def verification(self) -> Verification:
        """Result of verifying the evidence, which may take minutes."""
        return self.verify()

    @cached_property
    def ids(self) -> list[str]:
        """Ids of all nodes."""
        return self.client.data.ids()

    @cached_property
    def texts(self) -> list[str]:
        """Texts of all nodes."""
        return self.client.data.texts()

    @cached_property
    def views(self) -> dict[str, NDArray[np.float32]]:
        """[n, C] probabilities of every node by view; the deployed ones are calibrated."""
        info = RoundInfo("page", self.explainer.round, self.explainer.model_id, final=True)
        with torch.no_grad():
            probs = self.client.predict(info, torch.arange(self.client.data.num_nodes))
        probs["deployed"] = self.calibration.apply(probs["deployed"])
        return {name: of_view.float().cpu().numpy() for name, of_view in probs.items()}

    @cached_property
    def calibration(self) -> Calibration:
        """The temperature of the run, which its bundle also has."""
        return Calibration(**self.record["calibration"])


@contextmanager
def open_run(run: Path, number: int, client_folder: Path | None, log: Log) -> Iterator[Subject]:
    """Open a client of a finished run.

    Parameters
    ----------
    number : number of the client
    client_folder : folder of the client, if the run's partition is not on this machine

    Raises
    ------
    UserError : there is no such client, or the run keeps no evidence
    """
    finished = FinishedRun.open(run, client_folder)
    folder = finished.folder_of(number)
    data = finished.data(number)
    client, run_folder = finished.client(data), finished.client_run_folder(data)
    final = run_folder.final_path
    yield Subject(
        client=client,
        explainer=finished.explainer(client),
        name=f"client {data.card.client}",
        kind="run",
        source=str(finished.result["run"]),
        record=finished.result,
        labels=data.labels.cpu().numpy(),
        stored=Packs.load(final) if final.is_file() else None,
        home=run_folder.folder if run_folder.folder.is_dir() else data.folder,
        verify=lambda: _verify(lambda write: verify_evidence(run, folder, write), log),
    )


@contextmanager
def open_bundle(folder: Path, data: str, log: Log) -> Iterator[Subject]:
    """Open a graph, or a client's folder, with the model of a bundle.

    Raises
    ------
    UserError : the bundle's method keeps no evidence, or the data do not fit the model
    """
    bundle = Bundle.open(folder)
    if not get_spec(bundle.config.method).keeps_evidence:
        raise UserError(
            f"{folder}: expected a bundle of a method that keeps evidence, found one of "
            f"{bundle.config.method!r}"
        )
    with open_data(bundle, data, log) as client:
        client_data, of_client = client.data, (Path(data) / CARD).is_file()

        def check(write: Log) -> None:
            chunks = len(client_data.chunk_sha256)
            verify_sources(client_data)
            texts = client_data.num_nodes
            read = f"{counted(chunks, 'text passage')} of {counted(texts, 'text')}"
            write(f"{read} are those that were read")
            write(f"evidence was computed by model {bundle.model_id} when this page was written")

        labels = client_data.labels if of_client else known_labels(data, client)[1]
        yield Subject(
            client=client,
            explainer=bundle_explainer(bundle, client),
            name=f"client {client_data.card.client}" if of_client else Path(data).name,
            kind="bundle",
            source=folder.resolve().name,
            record=bundle.facts,
            labels=labels.cpu().numpy(),
            stored=None,
            home=Path(data) if of_client else None,
            verify=lambda: _verify(check, log),
        )


def _verify(check: Callable[[Log], None], log: Log) -> Verification:
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        log(line)

    # Two clocks, as the system time may be changed while the check runs.
    at, start, passed = datetime.now(UTC), monotonic(), True
    try:
        check(write)
    except UserError as error:
        # Why it goes on (decision 22): the page is written, and says in its head what failed.
        passed = False
        lines.append(str(error))
    return Verification(passed, lines, at, monotonic() - start)


@dataclass(frozen=True)
class NodeSigns:
    """Reasons to look at the predictions of n nodes.

    Attributes
    ----------
    predicted : [n] int64; margin : [n] float32 between the two best classes
    wrong : [n] bool, prediction differs from a known label
    disagree : [n] bool, some view predicts another class
    """

    predicted: NDArray[np.int64]
    margin: NDArray[np.float32]
    wrong: NDArray[np.bool_]
    disagree: NDArray[np.bool_]

    @classmethod
    def of(cls, views: dict[str, NDArray[np.float32]], labels: NDArray[np.int64]) -> "NodeSigns":
        """Compare the deployed [n, C] probabilities with labels and with the other views."""
        deployed = views["deployed"]
        predicted = deployed.argmax(axis=1)
        two = np.sort(deployed, axis=1)[:, -2:]
        others = [probs.argmax(axis=1) != predicted for name, probs in views.items()]
        return cls(
            predicted,
            # With one class there is no second.
            two[:, -1] - two[:, 0] if two.shape[1] > 1 else two[:, 0],
            (labels >= 0) & (predicted != labels),
            np.any(others, axis=0),
        )

    def headline(self) -> str:
        """Return how many predictions need a look, and why.

        Examples
        --------
        >>> views = {"deployed": np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)}
        >>> NodeSigns.of(views, np.array([1, 0])).headline()[:56]
        '1 of 2 predictions needs a look: 1 with another label, 0'
        """
        reasons = (self.wrong, self.disagree, self.margin < LOW_MARGIN)
        look = int(np.any(reasons, axis=0).sum())
        words = ("with another label", "with readings that disagree", "barely decided")
        why = [f"{int(of.sum()):,} {word}" for of, word in zip(reasons, words, strict=True)]
        need = "needs" if look == 1 else "need"
        return (
            f"{look:,} of {counted(len(self.margin), 'prediction')} {need} a look: {', '.join(why)}"
        )

    def order(self) -> NDArray[np.int64]:
        """Return all nodes by `RULE`; [n] int64, ties in the order of the data."""
        signs = self.wrong.astype(int) + self.disagree + (self.margin < LOW_MARGIN)
        return np.lexsort((self.margin, -signs))


def write_page(
    subject: Subject, out: Path | None, nodes: Sequence[str], max_packs: int, log: Log
) -> Path:
    """Write the audit page of a client; return its path.

    Parameters
    ----------
    out : file of the page; None = `audit.html` in the folder of the run at the client
    nodes : ids of the nodes with evidence on the page; empty = the first `max_packs` by `RULE`

    Raises
    ------
    UserError : a node is unknown, or `out` exists and is no page; also if the
        evidence did not verify, after writing the page, which says so
    """
    if out is None and subject.home is None:
        raise UserError("--out: expected the name of the page, found none, and no client's folder")
    path = out or (subject.home or Path()) / PAGE
    check_replaceable(path)
    # An entry may be a list of ids, and an id may contain commas.
    names = [[node] if node in subject.ids else node.split(",") for node in nodes]
    named = rows_of(dict.fromkeys(chain.from_iterable(names)), subject.ids) if nodes else None
    verification = subject.verification
    signs = NodeSigns.of(subject.views, subject.labels)
    chosen = signs.order()[:max_packs] if named is None else named
    page, done = _page(subject, signs, chosen)
    page.write(path)
    log(
        f"page        {path}, {size(path.stat().st_size)}: {counted(len(subject.ids), 'node')}, "
        f"evidence of {len(chosen):,}, effects of {done:,}; for its owner alone, as it contains "
        f"source texts of {subject.name}"
    )
    if not verification.passed:
        raise UserError(f"{path} says so: not verified: {verification.lines[-1]}")
    return path


def _page(subject: Subject, signs: NodeSigns, chosen: NDArray[np.int64]) -> tuple[Page, int]:
    """Return the page, and the number of packs with computed effects of their text.

    Parameters
    ----------
    chosen : numbers of the nodes with evidence on the page
    """
    client_data, seed = subject.client.data, subject.client.config.seed
    packs, stored = _packs(subject, chosen)
    names = [one_line(name, marks=True) for name in client_data.card.class_names]
    digests = pack_digests(packs, subject.ids, client_data.card.class_names)
    # After the digests, which are of sealed packs. The explainer of a bundle calibrates itself.
    if subject.kind == "run":
        packs = packs.calibrated(subject.calibration)
    # The seed of the run, so that a page that is written again has the same controls.
    draws = generator(seed, "page", client=client_data.card.client)
    explainer = replace(subject.explainer, calibration=subject.calibration)
    effects = leave_out(explainer, packs, _CONTROLS, draws, _MAX_ENTRIES)
    facts = PackFacts(
        packs=packs,
        candidates=subject.explainer.selection(torch.as_tensor(chosen)),
        effects=effects,
        reliability=_reliability(subject, signs),
        edge_spans=client_data.edge_spans,
        ids=subject.ids,
        texts=subject.texts,
        labels=subject.labels,
        class_names=names,
    )
    packed = [facts.of(row) for row in range(len(chosen))]
    shown = {article["node"] for pack in packed for article in pack["articles"]}
    data: dict[str, Any] = {**in_blocks("pack", enumerate(packed))}
    data |= in_blocks("text", ((node, subject.texts[node]) for node in sorted(shown)))
    data["index"] = _index(subject, signs, chosen, digests)
    known = subject.labels >= 0
    page = Page(
        "audit.html.j2",
        f"Evidence of {subject.name}",
        {
            "subject": subject,
            "verification": subject.verification,
            "index": data["index"],
            "headline": signs.headline(),
            "privacy": promises(subject.record),
            "accuracy": 1 - float(signs.wrong[known].mean()) if known.any() else None,
            "labelled": int(known.sum()),
            "packs": len(chosen),
            "stored": stored,
            "texts": len(shown),
            "rule": RULE,
        },
        data,
        scripts=("audit_list.js", "audit_pack.js", "audit_verdict.js", "audit.js"),
        styles=("audit.css",),
    )
    return page, int(effects.done.sum())


def _reliability(subject: Subject, signs: NodeSigns) -> Reliability:
    """Count right answers on validation nodes; without any, on labelled nodes outside splits."""
    split, known = subject.client.data.split.cpu().numpy(), subject.labels >= 0
    checked = known & (split == VAL)
    if not checked.any():
        checked = known & (split == NO_SPLIT)
    confidence = subject.views["deployed"].max(axis=1)
    return Reliability.of(confidence[checked], ~signs.wrong[checked])


def _packs(subject: Subject, nodes: NDArray[np.int64]) -> tuple[Packs, int]:
    # Why (decision 22): stored packs are shown as they are, so that verdicts are about what the run
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
    """Return the columns of the node table, in the order of `RULE`.

    Nodes with evidence on the page are always among the rows.
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
        "titles": [_title(subject.texts[node]) for node in rows],
        "node": rows.tolist(),
        "label": subject.labels[rows].tolist(),
        "predicted": signs.predicted[rows].tolist(),
        "margin": [round(float(m), 4) for m in signs.margin[rows]],
        "disagree": signs.disagree[rows].astype(int).tolist(),
        "split": [list(_SPLITS).index(int(code)) for code in data.split.cpu().numpy()[rows]],
        "pack": place[rows].tolist(),
    }


def _title(text: str) -> str:
    """Return the first words of a text, in one line."""
    line = one_line(" ".join(text[: 2 * _TITLE].split()), marks=True)
    return line if len(line) <= _TITLE else f"{line[:_TITLE].rsplit(' ', 1)[0]} …"
