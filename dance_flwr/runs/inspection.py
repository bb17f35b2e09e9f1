"""Show, verify and count the evidence of a finished run.

Verification follows a chain from the run's record to each weight (decision 20):
record -> card -> files (texts, edges, embeddings) -> chunks -> packs <- model <- record
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.embedding_check import encoded_again
from dance_flwr.data.card import CARD
from dance_flwr.data.digests import check_files, data_commitment
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import example_row, render
from dance_flwr.evidence.seal import verify_seal
from dance_flwr.evidence.summaries.summary import Sentence, Summaries
from dance_flwr.evidence.verify import PackCounts, verify_packs, verify_sources
from dance_flwr.federation.wire.keys import DATA_SHA256, EVIDENCE_SHA256
from dance_flwr.llm.config import CORE, ON_DEMAND, LlmConfig
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.finished_run import FinishedRun
from dance_flwr.runs.history import Round

# Why (decision 20): nothing but the encoder ties embeddings to texts, and encoding is slow.
ENCODED_CHUNKS = 16  # per client
Log = Callable[[str], None]


def show_evidence(
    run: Path,
    client: int,
    node: str | None,
    client_folder: Path | None,
    form: Callable[..., Any] = render,
) -> Any:
    """Return one evidence pack of a run as text.

    Parameters
    ----------
    client : number of the client
    node : id of the node; None = the most confident pack that draws on a neighbour. A node outside
        the condensed core has no stored pack; its pack is computed with the run's model
    client_folder : the client's folder; None = that of the run's partition
    form : what it is returned as, a function like `render`

    Raises
    ------
    UserError : the client has no packs, or no node of this id
    """
    finished = FinishedRun.open(run, client_folder)
    data = finished.data(client)
    calibration = Calibration(**finished.result["calibration"])
    packs = Packs.load(finished.run_folder(data).final_path).calibrated(calibration)
    if node is None:
        if not len(packs.nodes):
            raise UserError(
                f"client {client}: expected evidence packs, found none; choose another client"
            )
        example = example_row(packs)
        return form(data, packs, example, _summary(finished, data, packs, example))
    ids = data.ids()
    if node not in ids:
        raise UserError(f"--node: expected the id of a node of client {client}, found {node!r}")
    row = packs.row_of(ids.index(node))
    if row is None:
        packs = finished.explainer(data).explain(torch.tensor([ids.index(node)]))
        packs, row = packs.calibrated(calibration), 0
    return form(data, packs, row, _summary(finished, data, packs, row))


def _summary(
    finished: FinishedRun, data: ClientData, packs: Packs, row: int
) -> tuple[Sentence, ...] | None:
    """Return the summary of a pack that the run's `llm.summaries` asks for; None = extractive."""
    setting = LlmConfig.of(finished.config).summaries
    if setting == ON_DEMAND:
        from dance_flwr.evidence.summaries.language_model import summarise_pack

        return summarise_pack(data, packs, row, finished.config, finished.result["run"])
    if setting != CORE:
        return None
    summaries = Summaries.load(finished.run_folder(data).summaries_path)
    return summaries.of(packs, row, data.texts()) if summaries else None


def verify_evidence(
    run: Path,
    client_folder: Path | None,
    log: Log,
    encode: int = ENCODED_CHUNKS,
) -> None:
    """Verify all evidence of a run against its record, the source texts and the saved model.

    Parameters
    ----------
    client_folder : folder of the one client to verify; None = all clients of the run's partition
    log : receives a few lines per client, then a verdict
    encode : chunks per client, drawn at random, whose embeddings are computed again; 0 = none

    Raises
    ------
    UserError : names the first file, span, weight or model that does not agree
    """
    finished = FinishedRun.open(run, client_folder)
    assert finished.weights  # reading them compares them with the record
    with tempfile.TemporaryDirectory() as scratch:
        verified = [
            _verify_client(finished, client, encode, Path(scratch) / str(number), log)
            for number, client in enumerate(finished.clients)
        ]
    took_part = {n: counts for n, counts in enumerate(verified) if counts is not None}
    if client_folder is None and finished.settings.evidence_keep == "all":
        _verify_rounds(finished, took_part)
    # The verdict covers what was checked: an absent client's evidence is not verified.
    if len(took_part) == len(verified):
        log("evidence verified")
    else:
        log(f"evidence of {len(took_part)} of {counted(len(verified), 'client')} verified")


def _verify_client(
    finished: FinishedRun, client: int | None, encode: int, scratch: Path, log: Log
) -> PackCounts | None:
    """Verify the data and the packs of one client; return None if it took no part in the run.

    Parameters
    ----------
    scratch : folder for what is derived from the data, which is recomputed and not read

    Raises
    ------
    UserError : names what does not agree
    """
    card = check_files(folder := finished.folder_of(client))
    name = f"client {card.client}"
    recorded = _recorded(finished, DATA_SHA256, card.client)
    if recorded is None:
        log(f"{name}: took no part in the run, whose record holds no hash of its data")
        return None
    # The card fixes its files, and the record fixes the card: in this order, from the files up.
    if (commitment := data_commitment(card)) != recorded:
        raise UserError(
            f"{folder / CARD}: expected the data {recorded[:12]} of the run's record, found "
            f"{commitment[:12]}; the folder was altered or prepared again after the run"
        )
    log(f"{name}: {len(card.files)} files are those of the run's record, {recorded[:12]}")
    # Why (decision 20): what follows from the data is computed again, and not read.
    data = finished.data(client, scratch)
    sources = verify_sources(data)
    log(f"{name}: {encoded_again(data, sources.texts, encode)}")
    # Why (decision 20): the seal fixes packs of earlier models, which nothing recomputes.
    if sealed := _recorded(finished, EVIDENCE_SHA256, card.client):
        verify_seal(finished.run_folder(data), card.salt, sealed)
    counts = verify_packs(finished.explainer(data), finished.run_folder(data), sources)
    log(f"{name}: {counts.line(finished.model_id, bool(sealed))}")
    return counts


def _verify_rounds(finished: FinishedRun, verified: Mapping[int, PackCounts]) -> None:
    """Compare the packs of every round with those that the run's history counts.

    Raises
    ------
    UserError : names the round that has more or fewer packs
    """
    rows = [Round.read(json.dumps(row)) for row in finished.result.get("history", ())]
    for row in rows:
        # A record that does not count packs has them for the core of its round.
        expected = row.counts.get("evidence-packs", row.counts.get("condensed-nodes", 0))
        packs = {client: counts.by_round.get(row.round, 0) for client, counts in verified.items()}
        # Too many: only of clients that answered, as one whose answer was lost has packs that the
        # history does not count. Too few: only if the packs of every client are known.
        counted = sum(packs[client] for client in row.answered if client in packs)
        missing = len(verified) == finished.config.clients and sum(packs.values()) < expected
        if missing or counted > expected:
            raise UserError(
                f"round {row.round}: expected packs of {expected:,} nodes, as the record of the "
                f"run counts, found {sum(packs.values()) if missing else counted:,}; packs were "
                "removed or added, or a client lost its folder"
            )


def _recorded(finished: FinishedRun, key: str, client: int) -> str | None:
    """Return a hash that the run's record holds of a client; None where it holds none."""
    value = finished.result.get(key, {}).get(str(client))
    return None if value is None else str(value)


def print_summary_counts(run: Path, client_folder: Path | None, log: Log) -> None:
    """Log what the summaries of a run's final cores consist of, by client and together.

    Parameters
    ----------
    client_folder : folder of the one client to read; None = all clients of the run's partition
    log : receives the lines

    Raises
    ------
    UserError : the run wrote no summaries
    """
    from dance_flwr.evidence.summaries.statistics import SummaryCounts, calls_line

    finished, total = FinishedRun.open(run, client_folder), SummaryCounts()
    for client in finished.clients:
        data = finished.data(client)
        counts = SummaryCounts.of_client(finished.run_folder(data), data)
        total.merge(counts)
        log(f"client {data.card.client}: {counts.lines()[0]}; {calls_line(counts.calls)}")
    for line in total.lines():
        log(line)
