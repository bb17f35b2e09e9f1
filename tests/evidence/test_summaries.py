"""Summaries of a run: where they are written, shown and sealed, and what they do not touch."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from flwr.common.serde import message_to_proto
from support.graphs import SMALL
from support.project import PROJECT
from support.prompts import with_llm
from support.searching import secrets_of

from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import read_card
from dance_flwr.errors import DataError, UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import example_row, render
from dance_flwr.evidence.seal import seal
from dance_flwr.evidence.summaries.language_model import write_summaries
from dance_flwr.evidence.summaries.summary import (
    MAX_SENTENCES,
    Sentence,
    Summaries,
    lines_of,
    quote,
    spans_of,
    summary_line,
)
from dance_flwr.llm.session import LEDGER, CallCounts
from dance_flwr.runs.evidence import show_evidence, verify_evidence
from dance_flwr.runs.result import read_result, write_result

LONG = {"chunk_tokens": 64, "rounds": 2}  # a chunk has several sentences


@pytest.fixture(scope="module")
def off(run):
    return run(**LONG)


@pytest.fixture(scope="module")
def core(run):
    return run(llm_summaries="core", llm_backend="stub", **LONG)


@pytest.fixture
def copied(core, tmp_path):
    """A function that returns client 1's folder of a copy of the run, and the copy itself."""
    run, partition = core.copied(tmp_path)
    return RunFolder(partition / "client-1", core.result["run"]), run


def opened(finished, client=0):
    """Packs, summaries, site and folder of a client."""
    store = finished.store(client)
    return (
        Packs.load(store.final_path),
        Summaries.load(store.summaries_path),
        finished.data(client),
        store,
    )


def sentences(summaries):
    """Every sentence that a model wrote."""
    return [sentence for own in summaries.written.values() for sentence in own]


def test_every_core_node_has_a_summary_of_its_heaviest_spans(core):
    written = set()
    for client in range(core.config.clients):
        packs, summaries, data, _ = opened(core, client)
        texts = data.texts()
        assert {*summaries.written} <= {*packs.nodes.tolist()}
        for row in range(len(packs.nodes)):
            spans, summary = spans_of(packs, row, texts), summaries.of(packs, row, texts)
            assert [sentence.span for sentence in summary] == [1, 2][: len(spans)]
            assert len(summary) <= MAX_SENTENCES
            written |= {bool(sentence.author) for sentence in summary}
            assert all(s.text == " ".join(spans[s.span - 1].text.split())
                       for s in summary if not s.author)  # fmt: skip
    assert written == {True, False}  # the stub copies one sentence


def test_nothing_that_is_scored_changes(off, core):
    same = ("test_accuracy", "val_accuracy", "test_macro_f1", "model_fingerprint", "best_round")
    assert {key: off.result[key] for key in same} == {key: core.result[key] for key in same}
    for client in range(core.config.clients):
        (mine, summaries, _, _), (plain, none, _, _) = opened(core, client), opened(off, client)
        assert summaries and none is None
        for name in ("nodes", "probs", "chunks", "chunk_weights", "neighbours", "parts"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(plain, name))


def test_no_outgoing_byte_holds_a_summary(core):
    secrets = secrets_of(core)
    written = {s.text for c in range(core.config.clients) for s in sentences(opened(core, c)[1])}
    assert written and {text.encode() for text in written} <= {*secrets.strings}
    for message in core.messages:
        data = message_to_proto(message).SerializeToString().lower()
        assert not any(text.lower() in data for text in secrets.strings)


def test_a_second_finish_asks_nothing_and_writes_the_same(core, copied):
    folder, _ = copied
    before = folder.summaries_path.read_bytes()
    packs, _, data, _ = opened(core, 1)
    data.folder = folder.folder.parents[1]
    first = CallCounts.load(folder.folder / LEDGER)
    assert first.fresh_calls > 0 and first.capped_calls == first.failed_calls == 0
    write_summaries(folder, data, packs, core.config, core.result["run"])
    again = CallCounts.load(folder.folder / LEDGER)
    assert again.fresh_calls == first.fresh_calls
    assert again.cached_calls == first.cached_calls + first.fresh_calls + first.cached_calls
    assert folder.summaries_path.read_bytes() == before


def test_show_prints_the_summary_that_is_kept(core):
    packs, summaries, data, _ = opened(core, 1)
    row = example_row(packs)
    summary = summaries.of(packs, row, data.texts())
    text = show_evidence(core.folder, 1, None, None)
    assert text == render(data, packs, row, summary)
    shown = text.partition("summary     ")[2].split("\n\n")[0]
    assert [line.strip() for line in shown.splitlines()] == lines_of(summary)
    assert all(f"⟦[{sentence.span}] " in text for sentence in summary)


def test_a_client_without_a_model_takes_part_only_without_summaries(run, monkeypatch):
    def none(data, config, run):
        raise UserError("expected the file /home/someone/model.gguf, found none")

    monkeypatch.setattr("dance_flwr.evidence.summaries.language_model.open_session", none)
    with pytest.raises(UserError, match="expected a language model") as error:
        run(llm_summaries="core", **LONG)
    assert "someone" not in str(error.value)
    run(**LONG)


def test_a_model_that_is_lost_at_the_end_costs_no_run(core, copied, monkeypatch, caplog):
    folder, _ = copied
    packs, _, data, _ = opened(core, 1)

    def lost(*_):
        raise UserError("expected a file, found none")

    monkeypatch.setattr("dance_flwr.evidence.summaries.language_model.open_session", lost)
    summaries = write_summaries(folder, data, packs, core.config, core.result["run"])
    texts = data.texts()
    for row in range(len(packs.nodes)):
        extractive = quote(spans_of(packs, row, texts))
        found = summaries.of(packs, row, texts)
        assert [s.text for s in found] == [s.text for s in extractive]
    assert not summaries.written


def test_caps_hold_and_the_other_nodes_are_extractive(core, copied):
    folder, _ = copied
    packs, _, data, _ = opened(core, 1)
    data.folder = folder.folder.parents[1]
    shutil.rmtree(data.folder / "llm")
    (folder.folder / LEDGER).unlink()
    config = with_llm(core.config, summaries="core", backend="stub", max_calls=3)
    summaries = write_summaries(folder, data, packs, config, core.result["run"])
    ledger = CallCounts.load(folder.folder / LEDGER)
    assert ledger.fresh_calls == 3 and ledger.capped_calls > 0
    assert len(sentences(summaries)) >= 3  # spans may have the same text


def test_verify_reads_summaries_again(core, copied):
    said = []
    verify_evidence(copied[1], None, said.append)
    assert said[-1] == "evidence verified"
    count = len(sentences(opened(core, 1)[1]))
    assert any(f"{count} sentences of summaries checked" in line for line in said)


def changed(folder, edit):
    raw = json.loads(folder.summaries_path.read_text())
    edit(next(iter(raw["nodes"].values()))[0])
    folder.summaries_path.write_text(json.dumps(raw))


ALTERATIONS = {
    "an invented sentence": lambda entry: entry.update(text="Nothing of this is in the source."),
    "a word": lambda entry: entry.update(text=entry["text"] + " invented"),
    "another span": lambda entry: entry.update(span=9999),
    "no span": lambda entry: entry.update(span=0),
    "no author": lambda entry: entry.update(author=""),
}


@pytest.mark.parametrize("edit", ALTERATIONS.values(), ids=ALTERATIONS)
@pytest.mark.parametrize("record", ["genuine", "forged"])
def test_verify_fails_on_an_altered_summary(copied, edit, record):
    """Also where someone forged the record of the run."""
    folder, run = copied
    changed(folder, edit)
    if record == "forged":
        result = read_result(run)
        sealed = seal(folder, read_card(folder.folder.parents[1]).salt)
        result["evidence_sha256"]["1"] = sealed
        write_result(run, result)
    with pytest.raises(UserError) as error:
        verify_evidence(run, None, lambda line: None)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 2, "nodes": 3}'])
def test_a_damaged_file_is_named(copied, content):
    folder, run = copied
    folder.summaries_path.write_text(content)
    with pytest.raises(DataError, match="expected summaries of format 2"):
        show_evidence(run, 1, None, None)


def test_summaries_of_another_model_are_not_shown(core):
    packs, summaries, data, _ = opened(core)
    other = Summaries("0" * 16, summaries.written)
    spans = spans_of(packs, 0, data.texts())
    assert other.of(packs, 0, data.texts()) == quote(spans)


def test_an_author_cannot_forge_a_line():
    (line,) = lines_of([Sentence(1, "text\nsummary", "model\x1b]0;x\x07\n⟦")])
    assert line.isprintable() and "⟦" not in line


def test_the_report_counts_what_is_kept(core, off, cli):
    done = cli("report", core.folder)
    total = sum(len(sentences(opened(core, c)[1])) for c in range(core.config.clients))
    (line,) = [line for line in done.out.splitlines() if line.startswith("summaries")]
    assert f"{total:,} sentences written and checked" in line
    assert summary_line(off.partition, off.result["run"], off.config.clients) == ""


def test_without_summaries_no_language_model_is_imported(tiny, tmp_path):
    """A whole run and `evidence show` in a process of its own."""
    small = {**SMALL, "rounds": 1, "local-epochs": 1}
    pairs = [f"--set={key}={value}" for key, value in small.items() if "ratio" not in key]
    pairs = [pair for pair in pairs if "llm." not in pair]
    code = f"""
import sys
from dance_flwr.cli.main import main
for arguments in (
    ["run", "--data", {str(tiny)!r}, "--out", {str(tmp_path / "run")!r}, *{pairs}],
    ["evidence", "show", {str(tmp_path / "run")!r}],
):
    sys.argv = ["dance-flwr", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
found = [name for name in sys.modules if name.startswith("dance_flwr.llm.")]
found += [name for name in ("xllamacpp", "openai", "snowballstemmer") if name in sys.modules]
print("imported", sorted(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported ['dance_flwr.llm.config']"
