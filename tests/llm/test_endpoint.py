"""The client's own endpoint, against servers that do not what they should."""

import logging
from dataclasses import replace

import pytest
from support.fake_endpoint import GOOD, SHAPES, USAGES, FakeEndpoint, words
from support.prompts import prompt, session

from dance_flwr.errors import UserError
from dance_flwr.llm.endpoint import Endpoint
from dance_flwr.llm.local_settings import LocalSettings
from dance_flwr.llm.model import ReplyError

openai = pytest.importorskip("openai", reason="needs the package openai, of the extra llm")

KEY = "sk-zqkey0123456789"
SENTINEL = "zqcomet4711"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    yield
    while OPENED:
        OPENED.pop().close()


OPENED = []


def endpoint(server, **settings):
    own = LocalSettings(base_url=server.url, model="toy:7b", timeout=5.0)
    OPENED.append(Endpoint(replace(own, **settings), lambda: words))
    return OPENED[-1]


def complete(server, **settings):
    return endpoint(server, **settings).complete(prompt(SENTINEL), 32, 0)


def test_a_right_reply_and_what_was_asked(caplog):
    with FakeEndpoint() as server:
        found = complete(server)
    assert (found.text, found.finish) == (GOOD, "stop")
    ((method, path, headers, body),) = server.requests
    headers = {name.lower(): value for name, value in headers.items()}
    assert (method, path) == ("POST", "/v1/chat/completions")  # no list of models, no probe
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 0, 32)
    assert body["response_format"]["json_schema"]["schema"] == prompt().template.schema
    assert body["messages"] == prompt(SENTINEL).chat()


def test_its_counts_are_ours_where_the_tokeniser_is_the_same():
    with FakeEndpoint() as server:
        model = endpoint(server)
        found = model.complete(prompt(), 32, 0)
        assert found.prompt_tokens == model.count_prompt(prompt())
        assert found.completion_tokens == model.count(GOOD) == 2


@pytest.mark.parametrize("way", USAGES)
def test_a_count_that_cannot_be_true_is_replaced_by_ours(way):
    with FakeEndpoint(way) as server:
        model = endpoint(server)
        found = model.complete(prompt(), 32, 0)
    assert (found.prompt_tokens, found.completion_tokens) == (model.count_prompt(prompt()), 2)


@pytest.mark.parametrize("way", ["429", "500", "503"])
def test_a_busy_or_failing_server_is_asked_again(way):
    with FakeEndpoint(way, way, GOOD) as server:
        found = complete(server)
    assert found.text == GOOD and len(server.requests) == 3
    sent = len(prompt(SENTINEL).text.split()) + 8
    assert found.prompt_tokens == sent * (1 if way == "429" else 3), "what was refused unread"


@pytest.mark.parametrize(("way", "requests"), [("429", 3), ("500", 3), ("slow", 3)])
def test_it_is_not_asked_for_ever_and_what_it_read_is_counted(way, requests):
    with FakeEndpoint(way) as server, pytest.raises(ReplyError) as failed:
        complete(server, timeout=0.2)
    assert len(server.requests) == requests
    sent = len(prompt(SENTINEL).text.split()) + 8
    assert failed.value.prompt_tokens == (0 if way == "429" else requests * sent)


def test_a_slow_server_that_wakes_up_costs_two_prompts(tmp_path):
    with FakeEndpoint("slow", GOOD) as server:
        model = endpoint(server, timeout=0.3)
        with session(model, tmp_path) as asking:
            assert asking.ask(prompt()) == {"score": 3}
    assert asking.counts.fresh_calls == 1
    assert asking.counts.fresh_prompt == 2 * model.count_prompt(prompt())


def test_a_server_that_knows_no_schemas_is_asked_without_one_from_then_on():
    with FakeEndpoint("400 to schemas") as server:
        model = endpoint(server)
        assert model.complete(prompt("a"), 32, 0).text == GOOD
        assert model.complete(prompt("b"), 32, 0).text == GOOD
    assert ["response_format" in body for *_, body in server.requests] == [True, False, False]


@pytest.mark.parametrize("way", ["schema ignored", "prose", "truncated", *SHAPES, "413"])
def test_a_reply_that_is_none_is_unusable_and_kept_nowhere(way, tmp_path):
    with FakeEndpoint(way) as server:
        with session(endpoint(server), tmp_path) as asking:
            assert asking.ask(prompt(SENTINEL)) is None
        assert (asking.counts.fresh_calls, asking.counts.failed_calls) == (1, 1)
        server.ways[:] = [GOOD]  # put right: it is asked again
        with session(endpoint(server), tmp_path) as asking:
            assert asking.ask(prompt(SENTINEL)) == {"score": 3}


@pytest.mark.parametrize(
    ("way", "found"),
    [("401", "key refused"), ("403", "key refused"), ("404", "no such model")],
)
def test_what_every_call_would_meet_ends_the_run_at_once(way, found):
    with FakeEndpoint(way) as server, pytest.raises(UserError, match=found):
        complete(server)
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_named_by_its_setting():
    with FakeEndpoint() as server:
        pass
    with pytest.raises(UserError, match=r"found no connection.*DANCE_FLWR_LLM"):
        complete(server)


def test_a_redirect_is_not_followed():
    with FakeEndpoint() as other, FakeEndpoint("redirect") as server:
        server.elsewhere = f"{other.url}/chat/completions"
        with pytest.raises(UserError, match="a redirect, which is not followed"):
            complete(server)
    assert len(server.requests) == 1 and not other.requests


def test_no_proxy_of_the_environment_sees_a_prompt(monkeypatch):
    with FakeEndpoint() as proxy, FakeEndpoint() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert complete(server).text == GOOD
    assert len(server.requests) == 1 and not proxy.requests


@pytest.mark.parametrize("way", ["401", "404", "413", "500", "prose", "slow", "redirect"])
def test_no_error_and_no_log_holds_a_text_the_key_or_the_address(way, caplog, capfd, tmp_path):
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    said = []
    with FakeEndpoint(way) as server:
        server.elsewhere = "http://127.0.0.1:9/secret"
        try:
            with session(endpoint(server, timeout=0.2), tmp_path) as asking:
                for number in range(3):
                    asking.ask(prompt(f"{SENTINEL} {number}"))
        except UserError as error:
            said.append(str(error))
    out = capfd.readouterr()
    said += [out.out, out.err, *(record.getMessage() for record in caplog.records)]
    said += [record.exc_text or "" for record in caplog.records]
    assert said[0] and server.requests
    for secret in (SENTINEL, KEY, server.url, "127.0.0.1", "secret"):
        assert secret not in "\n".join(said)


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-geheim\nX-Other: 1")
    with FakeEndpoint() as server, pytest.raises(UserError) as refused:
        endpoint(server)
    assert "OPENAI_API_KEY" in str(refused.value) and "geheim" not in str(refused.value)


@pytest.mark.parametrize("missing", ["base_url", "model"])
def test_address_and_model_are_the_clients_to_name(missing):
    with FakeEndpoint() as server, pytest.raises(UserError, match=missing.replace("_", "-")):
        endpoint(server, **{missing: ""})


def test_texts_with_single_surrogates_are_sent_all_the_same():
    with FakeEndpoint() as server:
        assert endpoint(server).complete(prompt("a \ud800 b"), 32, 0).text == GOOD
