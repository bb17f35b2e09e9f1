"""Verify the evidence of a finished run link by link, from the run's record to each weight.

record -> card -> files (texts, edges, embeddings) -> chunks -> packs <- model <- record
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.embedding_check import encoded_again
from dance_flwr.config.paths import STATE
from dance_flwr.data.card import CARD
from dance_flwr.data.digests import check_files, data_commitment
from dance_flwr.errors import UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.seal import verify_seal
from dance_flwr.evidence.summaries.file import Summaries, verify_summaries
from dance_flwr.evidence.verify import (
    Sources,
    verify_nodes,
    verify_parts,
    verify_sources,
    verify_spans,
    verify_weights,
)
from dance_flwr.federation.wire.keys import DATA_SHA256, EVIDENCE_SHA256
from dance_flwr.runs.evidence import EvidenceRun
from dance_flwr.runs.history import Round

ENCODED_AGAIN = 16  # chunks per client


@dataclass
class _Counts:
    """Numbers of packs, of spans compared with the source texts, of packs recomputed, of sentences
    of summaries, and of the packs of each round.
    """

    packs: int = 0
    spans: int = 0
    recomputed: int = 0
    sentences: int = 0
    by_round: dict[int, int] = field(default_factory=dict)

    def line(self, fingerprint: str, sealed: bool) -> str:
        """Return what was verified of the packs, and what was not, in words."""
        done = (
            f"{self.spans:,} spans of {self.packs:,} packs read back from the source texts, "
            f"weights of {self.recomputed:,} packs recomputed from model {fingerprint}"
        )
        if self.sentences:
            done += f"; {self.sentences:,} sentences of summaries checked against their spans"
        if rest := self.packs - self.recomputed:
            how = "as sealed at its end" if sealed else "not sealed, so their weights are not known"
            done += f"; {rest:,} packs are of models that a run does not keep: {how}"
        return done


def verify_evidence(
    run: Path,
    client_folder: Path | None,
    say: Callable[[str], None],
    encode: int = ENCODED_AGAIN,
) -> None:
    """Verify all evidence of a run against its record, the source texts and the saved model.

    Parameters
    ----------
    client_folder : folder of the one client to verify; None = all clients of the run's partition
    say : receives a few lines per client, then a verdict
    encode : chunks per client, drawn at random, whose embeddings are computed again; 0 = none

    Raises
    ------
    UserError : names the first file, span, weight or model that does not agree
    """
    opened = EvidenceRun.open(run, client_folder)
    assert opened.weights  # read, and compared with the record
    with tempfile.TemporaryDirectory() as scratch:
        verified = [
            _verify_client(opened, client, encode, Path(scratch) / str(number), say)
            for number, client in enumerate(opened.clients)
        ]
    took_part = {n: counts for n, counts in enumerate(verified) if counts is not None}
    if client_folder is None and opened.settings.evidence_keep == "all":
        _verify_rounds(opened, took_part)
    if len(took_part) == len(verified):
        say("evidence verified")
    else:
        say(f"evidence of {len(took_part)} of {len(verified)} clients verified")


def _verify_client(
    opened: EvidenceRun, client: int | None, encode: int, scratch: Path, say: Callable[[str], None]
) -> _Counts | None:
    """Verify the data and the packs of one client; return None if it took no part in the run.

    Parameters
    ----------
    scratch : folder for what follows from the data, which is computed again, not read

    Raises
    ------
    UserError : names what does not agree
    """
    card = check_files(folder := opened.folder_of(client))
    name, fingerprint = f"client {card.client}", opened.result["model_fingerprint"]
    recorded = _recorded(opened, DATA_SHA256, card.client)
    if recorded is None:
        say(f"{name}: took no part in the run, whose record holds no hash of its data")
        return None
    if (found := data_commitment(card)) != recorded:
        raise UserError(
            f"{folder / CARD}: expected the data {recorded[:12]} of the run's record, found "
            f"{found[:12]}; the folder was altered or prepared again after the run"
        )
    say(f"{name}: {len(card.files)} files are those of the run's record, {recorded[:12]}")
    data = opened.data(client, scratch)
    sources = verify_sources(data)
    say(f"{name}: {encoded_again(data, sources.texts, encode)}")
    if sealed := _recorded(opened, EVIDENCE_SHA256, card.client):
        verify_seal(opened.store(data), card.salt, sealed)
    counts = _verify_packs(opened, data, fingerprint, sources)
    say(f"{name}: {counts.line(fingerprint, bool(sealed))}")
    return counts


def _verify_rounds(opened: EvidenceRun, found: Mapping[int, _Counts]) -> None:
    """Compare the packs of every round with those that the run's history counts.

    A client whose answer was lost has packs that the history does not count, and those of a client
    that took no part until the end are not known.

    Raises
    ------
    UserError : names the round whose packs are not as many
    """
    rows = [Round.read(json.dumps(row)) for row in opened.result.get("history", ())]
    for row in rows:
        # A record of before packs were counted has them for the core of its round.
        expected = row.counts.get("evidence-packs", row.counts.get("condensed-nodes", 0))
        packs = {client: counts.by_round.get(row.round, 0) for client, counts in found.items()}
        counted = sum(packs[client] for client in row.answered if client in packs)
        lacking = len(found) == opened.config.clients and sum(packs.values()) < expected
        if lacking or counted > expected:
            raise UserError(
                f"round {row.round}: expected packs of {expected:,} nodes, as the record of the "
                f"run counts, found {sum(packs.values()) if lacking else counted:,}; packs were "
                "removed or added, or a client lost its folder"
            )


def _recorded(opened: EvidenceRun, key: str, client: int) -> str | None:
    """Return a hash that the run's record holds of a client; None where it holds none."""
    found = opened.result.get(key, {}).get(str(client))
    return None if found is None else str(found)


def _verify_packs(
    opened: EvidenceRun, data: ClientData, fingerprint: str, sources: Sources
) -> _Counts:
    """Verify all packs that a client stored in this run.

    Raises
    ------
    UserError : names the first span, weight or model that does not agree
    """
    model, settings, counts = opened.model(data), opened.settings, _Counts()
    store = opened.store(data)
    # Its predecessor is of another core.
    known = (store.folder / STATE).is_file()
    core = store.load(data.device).core if known else None
    core = core if core is not None and core.numel() else None  # of a state that was lost
    for path in store.all_packs():
        packs, final = Packs.load(path), path.stem == "final"
        if final and packs.model_id != fingerprint:
            raise UserError(
                f"{path}: expected packs of model {fingerprint}, found {packs.model_id}; they were "
                "altered"
            )
        verify_nodes(data, packs, path.name, core if final else None)
        verify_spans(data, packs, path.name, sources)
        verify_parts(packs, path.name)
        counts.packs += len(packs.nodes)
        if not final:
            counts.by_round[int(path.stem.removeprefix("round-"))] = len(packs.nodes)
        counts.spans += len(packs.chunks)
        # Evidence that rests on an earlier model too, frozen or preselected by its difficulty,
        # does not follow from the model that the pack names.
        fresh = settings.text_refresh_every > 0 and packs.difficulty_round == packs.round
        if packs.model_id == fingerprint and (final or fresh):
            graph = None if final else data.training_graph
            smooth = opened.smooth(data) if final else None
            verify_weights(data, packs, path.name, model, settings, graph, smooth)
            counts.recomputed += len(packs.nodes)
        if final and (summaries := Summaries.load(store.summaries_path)):
            counts.sentences += verify_summaries(packs, summaries, sources.texts)
    return counts
