"""Tokens: three ledgers, the readings of the paper's claim, and a verdict for each rival."""

from dataclasses import replace

import pytest
from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cells import Cell, Request, Row, default_methods
from dance_flwr_studies.engine.compact_rows import compact
from dance_flwr_studies.engine.folder import FACTS, Study, read_json, run_name, settings_of
from dance_flwr_studies.engine.llm_rows import NEEDS, stamp
from dance_flwr_studies.engine.worker import Task, perform
from dance_flwr_studies.protocols.token_claim import judge
from study_support.rows import ASKED, cells_of, ledgers, row_of, table_rows
from support.counted_method import QUESTIONS, register
from support.graphs import SMALL

from dance_flwr.config.tree import parse
from dance_flwr.data.prepare import prepare
from dance_flwr.methods import get_spec
from dance_flwr.runs.token_ledgers import llm_tokens

TOKENS = get_experiment("tokens")


@pytest.fixture
def rival(monkeypatch):
    """A rival that asks a language model is registered, as `llm4rgnn`."""
    register(monkeypatch, "llm4rgnn")


def cells(*methods, backend="endpoint", seeds=(0, 1, 2), summaries=False, name="tokens"):
    overrides = {"llm.backend": backend} | ({"llm.summaries": "core"} if summaries else {})
    request = Request(("cora",), methods, seeds, overrides=overrides, ratios=(0.08,))
    return get_experiment(name).cells(request)


def asked(row, tokens, *, tokeniser="words", digest="d" * 64):
    """A row whose run asked a language model: tokens are split among the four counts."""
    parts = [tokens // 2, tokens // 4, tokens // 8]
    counts = dict(zip(ASKED, [*parts, tokens - sum(parts)], strict=True))
    made = ledgers(True, **counts, models=["m"], tokenisers=[tokeniser])
    facts = row.result["facts"] | {
        "llm": {"backend": row.config["llm.backend"], "cache_sha256": digest}
    }
    return replace(row, result=row.result | {"tokens": made, "facts": facts})


def summaries(tokens, accuracy=0.8, **options):
    made = [cell for cell in cells("dance", summaries=True) if "variant" in cell.labels]
    assert len(made) == 3
    return [asked(row_of(cell, accuracy), tokens, **options) for cell in made]


def rivals(tokens, accuracy=0.8, backend="endpoint", **options):
    made = cells("llm4rgnn", backend=backend)
    return [asked(row_of(cell, accuracy), tokens, **options) for cell in made]


def test_runs_with_summaries_are_cells_of_their_own_where_asked_for(rival):
    plain, with_them = cells("dance", "fedavg-full"), cells("dance", "fedavg-full", summaries=True)
    assert with_them[: len(plain)] == plain
    more = with_them[len(plain) :]
    assert [cell.labels["seed"] for cell in more] == [0, 1, 2]
    assert {cell.labels["variant"] for cell in more} == {"with summaries"}
    assert {cell.labels["ratio"] for cell in more} == {0.08}


@pytest.mark.parametrize(
    ("dance", "theirs", "gains", "text"),
    [
        (6658, 10000, (0.0, 0.0), "holds"),  # 33.42 % below, to the token
        (6659, 10000, (0.1, 0.1), "fails: too few tokens saved"),
        (10, 10000, (-0.02, 0.0), "fails: less accurate"),
        (10, 10000, (-0.02, 0.03), "holds"),  # the mean over paired seeds
        (20000, 10000, (-0.1, 0.0), "fails: too few tokens saved, less accurate"),
    ],
)
def test_the_claim_holds_by_its_rule(rival, dance, theirs, gains, text):
    mine = [
        replace(row, result=row.result | {"test_accuracy": 0.8 + gain})
        for row, gain in zip(summaries(dance), (*gains, 0.0), strict=True)
    ]
    found = judge(mine, rivals(theirs))
    assert found.text == text and found.seeds == 3
    assert found.change == pytest.approx(dance / theirs - 1)
    assert found.gain == pytest.approx(sum(gains) / 3)


def test_without_a_pair_of_seeds_or_one_tokeniser_there_is_no_verdict(rival):
    assert judge([], []) is judge(summaries(10)[:1], rivals(90)[1:]) is None
    other = judge(summaries(10), rivals(90, tokeniser="another"))
    assert other.text == "no recorded run with one tokeniser"
    assert other.counted_by == ["another", "words"]


def verdict(rows):
    section = TOKENS.render(rows)
    if any(part.startswith("Rivals with no recorded run: llm4rgnn") for part in section.parts):
        return "no recorded run"
    (line,) = table_rows(section, "llm4rgnn")[-1:]
    return line[-1]


def test_every_rival_has_a_verdict_and_rows_that_are_no_results_give_none(rival):
    full = [row_of(cell, 0.8) for cell in cells("dance")]
    assert verdict(full) == verdict([*full, *summaries(10)]) == "no recorded run"
    assert verdict([*full, *summaries(10), *rivals(90)]) == "holds"
    for bad in (rivals(90, backend="stub"), rivals(90, backend="embedded"), rivals(90, digest="")):
        assert verdict([*full, *summaries(10), *bad]) == "no recorded run"
    # Rows of the main table count as well as this experiment's own.
    beside = [replace(row, experiment="main-table") for row in rivals(12)]
    assert verdict([*full, *summaries(10), *beside]) == "fails: too few tokens saved"


def test_a_claim_that_fails_on_one_data_set_fails(rival):
    """Whichever comes last."""
    fails, holds = [*summaries(10), *rivals(12)], [*summaries(10), *rivals(90)]
    other = [replace(row, labels={**row.labels, "dataset": "citeseer"}) for row in holds]
    for rows in ([*fails, *other], [*other, *fails]):
        text = TOKENS.verdict(rows)
        assert text.startswith("**does not hold**") and "on citeseer it holds" in text


def test_a_stub_is_stamped(rival):
    section = TOKENS.render(rivals(600, backend="stub"))
    assert table_rows(section, "llm4rgnn [stub, no result]")


def test_by_default_no_experiment_runs_a_method_that_asks(rival):
    assert get_spec("llm4rgnn").card.needs_llm and "llm4rgnn" not in default_methods()
    for name in ("main-table", "primary", "tokens", "convergence", "runtime"):
        experiment = get_experiment(name)
        request = Request(("cora",), experiment.methods, (5,))
        methods = {cell.config.method for cell in experiment.cells(request)}
        assert "llm4rgnn" not in methods and "dance" in methods, name
    assert {cell.config.method for cell in cells_of("main-table", methods=("llm4rgnn",))} == {
        "llm4rgnn"
    }


def test_the_main_table_prints_the_papers_number_until_an_endpoint_answered(rival):
    table = get_experiment("main-table")
    full = [row_of(cell, 0.8) for cell in cells("fedavg-full", name="main-table")]
    nothing = ["llm4rgnn", "full", NEEDS, "87.26 ± 0.32"]
    assert not table_rows(table.render(full), "llm4rgnn"), "nobody asked for it"
    for bad in (rivals(90, backend="stub"), rivals(90, backend="embedded"), rivals(90, digest="")):
        section = table.render([*full, *bad])
        assert table_rows(section, "llm4rgnn") == [nothing]
        assert any("Rows left out: 3 of llm4rgnn (" in str(part) for part in section.parts)
    (first, *_) = table_rows(table.render([*full, *rivals(90, 0.9)]), "llm4rgnn")
    assert first == ["llm4rgnn", "full", "90.00 ± 0.00", "87.26 ± 0.32"]


def test_a_run_records_its_back_end_its_tokens_and_the_digest_of_its_cache(
    tiny, tmp_path, monkeypatch
):
    register(monkeypatch, "llm4rgnn")
    keys = {**SMALL, "data": str(tiny), "clients": 3, "rounds": 1, "seed": 97}

    def made(method, out):
        config = parse({**keys, "method": method, "llm.backend": "stub"})
        cell = Cell({"dataset": "tiny", "method": method, "ratio": "full", "seed": 97}, config)
        assert perform(Task(cell, out, prepare(config).folder)) == ""
        folder = Study(out).run_folder(config)
        result = compact(read_json(folder / "result.json"), read_json(folder / FACTS), False)
        return Row("main-table", cell.labels, run_name(config), settings_of(config), result)

    row, again = made("llm4rgnn", tmp_path / "a"), made("llm4rgnn", tmp_path / "b")
    facts, ledger = row.result["facts"]["llm"], row.result["tokens"]["llm"]
    assert (facts["backend"], facts["models"], facts["tokenisers"]) == (
        *("stub", ["stub 1"]),
        ["words"],
    )
    assert ledger["fresh_calls"] == 3 * QUESTIONS
    # The replies are the same: their digest is, and only fresh counts differ.
    assert again.result["facts"]["llm"] == facts and len(facts["cache_sha256"]) == 64
    assert again.result["tokens"]["llm"]["cached_calls"] == 3 * QUESTIONS
    assert llm_tokens(again.result["tokens"]) == llm_tokens(row.result["tokens"]) > 0
    assert stamp(row) == "stub, no result"
    plain = made("fedavg-full", tmp_path / "a")
    assert "llm" not in plain.result["facts"] and stamp(plain) == ""
