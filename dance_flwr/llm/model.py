"""The interface of a back end of the language model, and the stub for tests."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dance_flwr.llm.template import Embed, Prompt


@dataclass(frozen=True)
class Completion:
    """A model's reply before it is checked.

    Attributes
    ----------
    text : the reply
    prompt_tokens, completion_tokens : numbers of tokens, counted by `LanguageModel.count` or by the
        server; those of the prompt for every attempt that a server may have read
    finish : "stop", or "length" where the limit cut the reply off
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: str = "stop"


class LanguageModel(ABC):
    """Base class of a language model that answers one prompt at a time.

    Attributes
    ----------
    name : back end, version, and hash of the weights or name at the endpoint; part of the cache's
        key
    counted_by : name of the tokeniser that counts
    repeats : whether the same question always has the same reply, so that an unusable reply is not
        requested again
    """

    name: str
    counted_by: str
    repeats: bool = False

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""

    def count_prompt(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt, with its chat template if the model knows it."""
        return self.count(prompt.text)

    @abstractmethod
    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the reply at temperature 0.

        Raises
        ------
        ReplyError : the model gave no reply
        """

    def close(self) -> None:  # noqa: B027, not every model has connections
        """Close open connections; the model can be used again afterwards."""


class ReplyError(Exception):
    """Raised by a call without a usable reply, which the session counts.

    Attributes
    ----------
    prompt_tokens, completion_tokens : tokens that the call used nevertheless
    """

    def __init__(self, reason: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        super().__init__(reason)
        # A call without a reply has cost its tokens all the same, so that the caps must count them.
        self.prompt_tokens, self.completion_tokens = prompt_tokens, completion_tokens


class Stub(LanguageModel):
    """A back end for tests: replies with the template's `stub` and counts words as tokens."""

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
