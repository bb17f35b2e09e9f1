"""Templates of prompts: wording, schema of the reply, and the reply of the stub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # texts -> [n, d], rows of norm 1


@dataclass(frozen=True)
class Message:
    """One message of a chat; the role is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True)
class Template:
    """One kind of prompt.

    Attributes
    ----------
    name, version : part of the cache's key; a changed wording needs another version
    schema : JSON schema of the reply
    limit : maximum number of tokens of a reply
    render : facts -> messages; a prompt holds nothing but its facts
    stub : (facts, embed) -> a reply that fits `schema`, without a language model
    parse : text of a reply that is not JSON of `schema` -> a value, or None; without a parser such
        replies are unusable
    """

    name: str
    version: int
    schema: Json
    limit: int
    render: Callable[[Mapping[str, Any]], Sequence[Message]]
    stub: Callable[[Mapping[str, Any], Embed], Json]
    parse: Callable[[str], Json | None] | None = None

    def fill(self, **facts: Any) -> "Prompt":
        """Return the prompt filled with these facts."""
        return Prompt(self, facts, tuple(self.render(facts)))


@dataclass(frozen=True)
class Prompt:
    """A template, the facts that it was filled with, and the messages."""

    template: Template
    facts: Mapping[str, Any]
    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The text of all messages, for counting tokens and for tests."""
        return "\n".join(message.text for message in self.messages)

    def chat(self) -> list[dict[str, str]]:
        """Return the messages in the form of the chat API.

        Lone surrogates, which cannot be encoded as UTF-8, are replaced.
        """
        return [
            {"role": message.role, "content": message.text.encode("utf-8", "replace").decode()}
            for message in self.messages
        ]
