"""What every back end of a language model is."""

import json
from dataclasses import dataclass
from typing import Protocol

from dance_flwr.llm.template import Embed, Prompt


@dataclass(frozen=True)
class Completion:
    """What a model returned, not yet checked.

    Attributes
    ----------
    text : of the reply
    prompt_tokens, completion_tokens : by `LanguageModel.count` or by the server, see `counted_by`
    finish : "stop", or "length" where the limit cut the reply off
    resent : earlier attempts of this call whose prompt the server may have read all the same
    estimated : whether the tokens are by `LanguageModel.count`, since the server gave no number
        that can be true
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: str = "stop"
    resent: int = 0
    estimated: bool = False


class LanguageModel(Protocol):
    """A language model that answers one prompt at a time.

    Attributes
    ----------
    name : back end, version, and hash of the weights or name at the endpoint; in the cache's key
    counted_by : name of the tokeniser of the counts
    repeats : whether the same question has the same reply for sure, so that an unusable one need
        not be asked for again; absent = False

    A model that knows its chat template has `count_prompt`, the tokens of a prompt with it; one
    that holds connections has `close`, after which it can be asked again.
    """

    name: str
    counted_by: str

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...

    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the reply at temperature 0.

        Raises
        ------
        ReplyError : the model gave none
        """
        ...


class ReplyError(Exception):
    """A call without a usable reply; the session counts it.

    Attributes
    ----------
    prompt_tokens, completion_tokens : what it used all the same
    """

    def __init__(self, reason: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        super().__init__(reason)
        # A call without a reply has cost its tokens all the same, so that the caps must count them.
        self.prompt_tokens, self.completion_tokens = prompt_tokens, completion_tokens


def prompt_tokens(model: LanguageModel, prompt: Prompt) -> int:
    """Return the number of tokens of a prompt, with those of the chat template where known."""
    # Optional in the protocol: only a model that knows its chat template can count what it adds.
    count_prompt = getattr(model, "count_prompt", None)
    return int(count_prompt(prompt)) if count_prompt else model.count(prompt.text)


class Stub:
    """Reply as the template's `stub` says; tokens are words.

    Parameters
    ----------
    embed : the client's text encoder
    """

    # The number is the version of the stub, a part of the cache's key. Replies follow from the
    # facts and the encoder alone, hence `repeats`.
    name, counted_by, repeats = "stub 1", "words", True

    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())

    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the template's reply."""
        text = json.dumps(prompt.template.stub(prompt.facts, self._embed))
        return Completion(text, self.count(prompt.text), self.count(text))
