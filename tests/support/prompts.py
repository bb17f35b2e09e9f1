"""A template of a prompt, models that reply as they are told, and sessions on an empty folder."""

from dataclasses import replace

from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.model import Completion, LanguageModel, ReplyError
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import Message, Template, as_data

SCORE = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 6}},
    "required": ["score"],
    "additionalProperties": False,
}


def _render(facts):
    return [
        Message("system", "You judge whether two texts are related. Reply in JSON."),
        Message("user", f"First: {as_data(facts['first'])}\nSecond: {as_data(facts['second'])}"),
    ]


def _stub(facts, embed):
    first, second = embed([facts["first"], facts["second"]])
    return {"score": max(1, min(6, 1 + round(5 * float(first @ second))))}


RELEVANCE = Template("relevance", 1, SCORE, 32, _render, _stub)


def prompt(first="a comet near a planet", second="an orbit of a planet", template=RELEVANCE):
    return template.fill(first=first, second=second)


class Told(LanguageModel):
    """A model that replies with these texts one after the other, the last one for ever.

    A reply may be an exception, which it raises, or a `Completion`.
    """

    name, counted_by = "told 1", "words"

    def __init__(self, *replies, repeats=False):
        self.replies, self.repeats, self.asked = list(replies), repeats, []

    def count(self, text):
        return len(text.split())

    def complete(self, prompt, limit, seed):
        self.asked.append(prompt)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply, self.count(prompt.text), self.count(reply))


GOOD = '{"score": 3}'
NONE = ReplyError("told to fail", 7, 0)


def session(model, folder, run="r", **settings):
    """A session of a client whose folder is `folder`."""
    return Session(model, folder, run, LlmConfig(**settings))


def with_llm(config, **settings):
    """A run's configuration with these keys of the section `llm`."""
    others = [section for section in config.sections if section.name != LlmConfig.name]
    return replace(config, sections=(*others, LlmConfig(**settings)))


def is_cached(asking, question):
    """Whether a session answers a question from its cache."""
    before = asking.counts.cached_calls
    assert asking.ask(question) is not None
    return asking.counts.cached_calls > before
