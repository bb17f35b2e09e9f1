"""Templates of prompts: what is asked, in which form the reply must be, and what a stub replies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # texts -> [n, d], rows of norm 1


@dataclass(frozen=True)
class Message:
    """One message of a chat: "system", "user" or "assistant", and its text."""

    role: str
    text: str


@dataclass(frozen=True)
class Template:
    """One kind of prompt.

    Attributes
    ----------
    name, version : in the cache's key; a changed wording has another version
    schema : JSON schema of the reply
    limit : most tokens of a reply
    render : facts -> messages; facts are what the prompt may hold and nothing else
    stub : (facts, embed) -> a reply that fits `schema`, without a language model
    parse : the text of a reply that is no JSON of `schema` -> one that may be; None = such replies
        are unusable
    """

    name: str
    version: int
    schema: Json
    limit: int
    render: Callable[[Mapping[str, Any]], Sequence[Message]]
    stub: Callable[[Mapping[str, Any], Embed], Json]
    parse: Callable[[str], Json | None] | None = None

    def fill(self, **facts: Any) -> "Prompt":
        """Return the prompt of these facts."""
        return Prompt(self, facts, tuple(self.render(facts)))


@dataclass(frozen=True)
class Prompt:
    """A template, the facts that it was filled with, and the messages."""

    template: Template
    facts: Mapping[str, Any]
    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """All messages, for counting tokens and for tests."""
        return "\n".join(message.text for message in self.messages)

    def chat(self) -> list[dict[str, str]]:
        """Return the messages as chat servers take them; lone surrogates, which no JSON sent as
        UTF-8 can hold, are replaced.
        """
        return [
            {"role": message.role, "content": message.text.encode("utf-8", "replace").decode()}
            for message in self.messages
        ]
