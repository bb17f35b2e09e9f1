"""The three methods that ask a language model, against an endpoint that helps, dawdles or fails."""

import itertools
import json

import pytest
from support.fake_endpoint import FakeEndpoint

from dance_flwr.errors import UserError

pytest.importorskip("openai", reason="needs the package openai, of the extra llm")

RIVALS = ("llm4rgnn", "llata", "llm4fgl")
SECRET = "sk-zqgeheim43"
SEEDS = itertools.count(100)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)


def instance(schema):
    """A value that fits a schema of these methods' templates."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema["type"]
    if kind == "object":
        return {name: instance(part) for name, part in schema["properties"].items()}
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    assert kind == "string", schema
    return "a text about winds and waters of a far coast"


def rightly(body):
    """The reply that the schema in the request asks for."""
    return json.dumps(instance(body["response_format"]["json_schema"]["schema"]))


@pytest.fixture
def start(run, monkeypatch, tmp_path):
    """A function that runs a rival at an endpoint; partitions are new, so nothing is cached."""

    def begin(rival, server, timeout=20.0, **keys):
        own = tmp_path / "own.toml"
        own.write_text(f'[llm]\nbase-url = "{server.url}"\nmodel = "toy"\ntimeout = {timeout}\n')
        monkeypatch.setenv("DANCE_FLWR_LLM", str(own))
        few = {"llm4rgnn_pairs": 6, "clients": 2, "rounds": 3, "llm_backend": "endpoint"}
        return run(method=rival, **{**few, "seed": next(SEEDS), **keys})

    return begin


@pytest.mark.parametrize("rival", RIVALS)
def test_each_runs_to_its_end_and_every_call_is_counted(start, rival):
    with FakeEndpoint(rightly) as server:
        finished = start(rival, server)
    llm = finished.result["tokens"]["llm"]
    assert llm["fresh_calls"] == len(server.requests) > 0
    assert llm["failed_calls"] == 0 and llm["fresh_prompt"] > 0
    assert {method for method, *_ in server.requests} == {"POST"}  # no list of models
    assert not any(SECRET in json.dumps(body) for *_, body in server.requests)


@pytest.mark.parametrize("rival", RIVALS)
def test_useless_replies_end_the_run_in_words(start, rival):
    with FakeEndpoint("truncated") as server, pytest.raises(UserError, match="unusable replies"):
        start(rival, server)
    assert len(server.requests) >= 2
