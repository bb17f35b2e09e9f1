"""The three ledgers of a run, from what its clients counted."""

import json

from support.counted_method import QUESTIONS, register
from support.prompts import prompt

import client_app
from dance_flwr.evidence.pack import Packs
from dance_flwr.federation.wire import keys, messages
from dance_flwr.metrics import TOKEN_COUNTS, Tokens
from dance_flwr.runs.token_ledgers import ledger_lines, llm_tokens, token_ledgers

WORDS = len(prompt("node 0").text.split())  # the stub counts words
REPLY = len(json.dumps({"score": 0}).split())


def sums_are_totals(ledgers):
    for ledger in ledgers.values():
        rows = ledger["clients"]
        for name in set().union(*rows) - {"client"}:
            assert ledger[name] == sum(row[name] for row in rows), name


def test_sums_over_clients_are_the_totals(dance):
    ledgers = dance.result["tokens"]
    sums_are_totals(ledgers)
    assert list(ledgers) == ["encoder", "evidence", "llm"]
    assert [len(ledger["clients"]) for ledger in ledgers.values()] == [dance.config.clients] * 3
    assert ledgers["encoder"]["fresh"] == sum(dance.result["encoder_tokens"])
    assert llm_tokens(ledgers) == 0 == ledgers["llm"]["fresh_calls"]


def test_evidence_is_what_the_rounds_counted_and_each_chunk_once(dance):
    """Counters of the rounds, and the packs that were kept, give the same."""
    ledger, history = dance.result["tokens"]["evidence"], dance.result["history"]
    for what in ("chunks", "tokens"):
        assert ledger[what] == sum(row["counts"][f"evidence-{what}"] for row in history) > 0
    for row in ledger["clients"]:
        data, store = dance.data(row["client"]), dance.store(row["client"])
        packs = [Packs.load(path) for path in store.all_packs() if path != store.final_path]
        every = [int(chunk) for pack in packs for chunk in pack.chunks]
        tokens = {chunk: int(data.bank.tokens[chunk]) for chunk in every}
        assert row["chunks"] == len(every) and row["distinct_chunks"] == len(tokens)
        assert row["tokens"] == sum(tokens[chunk] for chunk in every)
        assert row["distinct_tokens"] == sum(tokens.values()) < row["tokens"]


def test_evidence_is_counted_whatever_packs_are_kept(run):
    kept, final = (
        run(dance_text_refresh_every=2, dance_evidence_keep=keep).result["tokens"]["evidence"]
        for keep in ("all", "final")
    )
    assert kept == final


def test_under_masks_only_sums_are_known(run):
    plain = run(clients=3, rounds=1).result["tokens"]
    masked = run(clients=3, rounds=1, privacy_secure_aggregation=True).result["tokens"]
    for name, ledger in masked.items():
        assert ledger["clients"] == []
        own = {key: value for key, value in ledger.items() if key != "clients"}
        assert own == {key: plain[name][key] for key in own}, name


def test_a_client_that_is_gone_at_the_end_costs_no_run(run):
    def app(message, context):
        final = messages.config_of(message).get(keys.FINAL, False)
        if final and context.node_config[keys.PARTITION_ID] == 1:
            raise ConnectionError("gone")
        return client_app.app(message, context)

    ledgers = run(app=app, min_valid_replies=2, rounds=1).result["tokens"]
    sums_are_totals(ledgers)
    assert [row["client"] for row in ledgers["evidence"]["clients"]] == [0, 2]
    assert [row["client"] for row in ledgers["encoder"]["clients"]] == [0, 1, 2]


def test_a_replay_from_the_cache_changes_fresh_counts_alone(run, monkeypatch):
    register(monkeypatch, "toy-asking")
    # A seed of its own: the clients' caches are empty.
    first, again = (run(method="toy-asking", rounds=2, seed=91).result["tokens"] for _ in "ab")
    sums_are_totals(first)
    sums_are_totals(again)
    calls = 3 * QUESTIONS  # three clients; the second round of the first run is cached, too
    assert first["llm"]["fresh_calls"] == first["llm"]["cached_calls"] == calls
    assert again["llm"]["fresh_calls"] == 0 and again["llm"]["cached_calls"] == 2 * calls
    assert first["llm"]["fresh_prompt"] == first["llm"]["cached_prompt"] == calls * WORDS
    assert first["llm"]["fresh_completion"] == calls * REPLY
    assert llm_tokens(first) == llm_tokens(again) == 2 * calls * (WORDS + REPLY)
    assert first["llm"]["models"] == ["stub 1"] and again["llm"]["tokenisers"] == ["words"]
    assert {name: ledger for name, ledger in first.items() if name != "llm"} == {
        name: ledger for name, ledger in again.items() if name != "llm"
    }


def test_the_command_line_says_what_was_counted():
    own = Tokens(
        **{name: place for place, name in enumerate(TOKEN_COUNTS, 1)}, model="m", tokeniser="t"
    )
    ledgers = token_ledgers({0: own, 1: own}, {"encoder_tokens": {0: 100, 1: 1000}})
    sums_are_totals(ledgers)
    assert ledger_lines(ledgers) == [
        "encoder 1,100, each text once",
        "evidence 4 in 2 chunks; each chunk once: 8 in 6",
        "language model 84 in 22 calls: prompts 18 fresh, 22 cached; replies 20 fresh, 24 cached; "
        "14 calls failed, 16 beyond the cap; counted by t",
    ]
    nothing = token_ledgers({None: Tokens()}, {"encoder_tokens": {None: 1100}})
    assert ledger_lines(nothing) == ["encoder 1,100, each text once"]
