"""The back end for tests: every template's own deterministic reply, no language model."""

import json

from dance_flwr.llm.model import Completion
from dance_flwr.llm.template import Embed, Prompt


class Stub:
    """Reply as the template's `stub` says; tokens are words.

    Parameters
    ----------
    embed : the client's text encoder
    """

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
