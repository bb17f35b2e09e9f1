"""A session: caps, checked replies, failures, what a second run costs."""

from dataclasses import replace

import pytest
from support.prompts import GOOD, NONE, RELEVANCE, Told, is_cached, prompt, session

from dance_flwr.errors import UserError
from dance_flwr.llm.model import Completion
from dance_flwr.llm.session import LEDGER, CallCounts, usable


def ledger_of(folder, run="r"):
    return CallCounts.load(folder / "runs" / run / LEDGER)


def test_a_reply_is_parsed_counted_and_asked_for_once(tmp_path):
    model = Told(GOOD)
    with session(model, tmp_path, "one") as asking:
        assert asking.ask(prompt()) == {"score": 3}
        assert asking.ask(prompt()) == {"score": 3}
    assert len(model.asked) == 1
    sent = model.count(prompt().text)
    counts = ledger_of(tmp_path, "one")
    assert (counts.fresh_calls, counts.fresh_prompt, counts.fresh_completion) == (1, sent, 2)
    assert (counts.cached_calls, counts.cached_prompt, counts.cached_completion) == (1, sent, 2)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_second_run_of_a_model_that_repeats_makes_no_fresh_call(tmp_path, repeats):
    """Nor for what was unusable; another model is asked again, as it may have been put right."""
    replies = ["prose", *[GOOD] * 30]
    with session(Told(*replies, repeats=repeats), tmp_path, "first") as asking:
        first = [asking.ask(prompt(str(number))) for number in range(25)]
    with session(model := Told("prose", repeats=repeats), tmp_path, "second") as asking:
        second = [asking.ask(prompt(str(number))) for number in range(25)]
    assert first[0] is None is second[0]
    assert first[1:] == second[1:]
    one, two = ledger_of(tmp_path, "first"), ledger_of(tmp_path, "second")
    assert len(model.asked) == two.fresh_calls == (0 if repeats else 1)
    assert one.failed_calls == two.failed_calls == 1
    if repeats:  # a replay changes fresh counts only
        assert (two.cached_prompt, two.cached_completion) == (
            one.fresh_prompt,
            one.fresh_completion,
        )


def test_another_question_model_or_seed_is_asked_again(tmp_path):
    schema = RELEVANCE.schema | {"title": "x"}
    changes = [{"version": 2}, {"name": "other"}, {"limit": 33}, {"schema": schema}]
    with session(Told(GOOD), tmp_path) as asking:
        asking.ask(prompt())
        assert not is_cached(asking, prompt(first="other"))
        for change in changes:
            assert not is_cached(asking, prompt(template=replace(RELEVANCE, **change)))
    other = Told(GOOD)
    other.name = "told 2"
    for model, seed in ((other, 0), (Told(GOOD), 1)):
        with session(model, tmp_path, seed=seed) as asking:
            assert not is_cached(asking, prompt())


def test_caps_are_checked_before_a_call(tmp_path):
    model = Told(GOOD)
    cost = model.count(prompt().text) + RELEVANCE.limit
    with session(model, tmp_path, "calls", max_calls=2) as asking:
        answers = [asking.ask(prompt("one", str(number))) for number in range(4)]
    assert [answer is None for answer in answers] == [False, False, True, True]
    assert (asking.counts.fresh_calls, asking.counts.capped_calls, len(model.asked)) == (2, 2, 2)
    with session(model, tmp_path, "tokens", max_tokens=cost - 1) as asking:
        assert asking.ask(prompt()) is None
    assert asking.counts.fresh_tokens == 0 and len(model.asked) == 2
    with session(model, tmp_path, "context", context=256) as asking:
        assert asking.ask(prompt("word " * 300)) is None
    assert asking.counts.capped_calls == 1 and len(model.asked) == 2


def test_at_a_cap_the_cache_still_answers(tmp_path):
    with session(Told(GOOD), tmp_path, "one") as asking:
        asking.ask(prompt())
    with session(Told(GOOD), tmp_path, "two", max_calls=0, max_tokens=0) as asking:
        assert is_cached(asking, prompt())


def test_a_call_is_in_the_ledger_before_it_is_made(tmp_path):
    class Killed(Told):
        def complete(self, prompt, limit, seed):
            assert ledger_of(tmp_path).fresh_calls == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), session(Killed(GOOD), tmp_path) as asking:
        asking.ask(prompt())
    assert ledger_of(tmp_path).fresh_calls == 1


def test_more_than_a_twentieth_of_unusable_replies_ends_the_run(tmp_path):
    words = r"told 1: expected at most 5% unusable replies, found 2 of 39, the last one: does not"
    replies = ["prose", *[GOOD] * 37, "prose"]
    with pytest.raises(UserError, match=words), session(Told(*replies), tmp_path) as asking:
        for number in range(39):
            asking.ask(prompt(str(number)))
    replies.insert(1, GOOD)  # 2 of 40
    with session(Told(*replies), tmp_path / "twice") as asking:
        for number in range(40):
            asking.ask(prompt(str(number)))
    assert asking.counts.failed_calls == 2


def test_a_model_that_fails_always_is_not_asked_for_ever(tmp_path):
    model = Told(NONE)
    with (
        pytest.raises(UserError, match="found 20 of 20, the last one: told to fail"),
        session(model, tmp_path) as asking,
    ):
        for number in range(1000):
            asking.ask(prompt(str(number)))
    assert len(model.asked) == 20 and ledger_of(tmp_path).fresh_prompt == 20 * 7


def test_outside_a_run_nothing_but_the_cache_is_written(tmp_path):
    with session(Told(GOOD), tmp_path, run="") as asking:
        asking.ask(prompt())
    assert asking.counts.fresh_calls == 1
    assert [path.name for path in tmp_path.iterdir()] == ["llm"]


def test_the_name_of_a_run_is_no_path(tmp_path):
    with pytest.raises(UserError, match="run: expected a name"):
        session(Told(GOOD), tmp_path, run="../other")


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "3", '"score"', "[]", "[3]", "{}", '{"score": 7}', '{"score": "3"}'),
        *('{"score": 3, "more": 1}', '{"score": 3} trailing', '```json\n{"score": 3}\n```'),
        *('{"score": NaN}', '{"score": Infinity}', '{"score": 1e999}', '{"score": true}'),
        *("[" * 100_000, '{"score":' * 5000, '{"score": ' + "9" * 5000 + "}", "\x00"),
        " " * 2_000_000 + GOOD,
    ],
)
def test_a_reply_that_does_not_fit_is_unusable(text):
    assert usable(Completion(text, 1, 1), prompt()) is None


def test_numbers_and_texts_that_no_file_holds_are_unusable_whatever_the_schema():
    anything = prompt(template=replace(RELEVANCE, schema={"type": "object"}))
    for text in ('{"a": NaN}', '{"a": -Infinity}', '{"a": 1e400}', '{"a": "\\ud800"}'):
        assert usable(Completion(text, 1, 1), anything) is None
    found = usable(Completion('{"a": "\\ud83d\\ude00", "b": 1.5}', 1, 1), anything)
    assert found == {"a": "\U0001f600", "b": 1.5}


def test_a_reply_that_was_cut_off_is_unusable_even_if_it_parses():
    assert usable(Completion(GOOD, 1, 2, "length"), prompt()) is None
    assert usable(Completion(GOOD, 1, 2, "stop"), prompt()) == {"score": 3}
