"""Summaries that a client's language model writes, sentence by sentence, behind a verifier.

The model is asked once for each of the heaviest spans, and shown nothing else. A sentence that does
not hold (`dance_flwr.evidence.grounding`) is replaced by its span, so that a model of nonsense
gives the extractive summary.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.text.chunking import split_sentences
from dance_flwr.errors import UserError
from dance_flwr.evidence.grounding import count_words, is_excerpt, nearest, refusal
from dance_flwr.evidence.summaries.quotes import EXCERPT, MOST, WRITTEN, Sentence, Span, quotation
from dance_flwr.llm.quoting import DATA_NOTE, as_data
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import Embed, Json, Message, Template

SHORT = 30  # words; spans of no more together are quoted, without a call
LONGEST_REPLY = 200  # characters
LONGEST_SPAN = 4000  # characters; a longer one, as of a word without end, is quoted

_SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": LONGEST_REPLY}},
    "required": ["text"],
    "additionalProperties": False,
}
_TASK = (
    "Shorten each text to one sentence of at most 30 words, with words of the text only. "
    f"{DATA_NOTE}"
)
_LONG = (
    "We study how to choose features for a classifier. Earlier work ranks features one by one, "
    "which misses those that are useful only together. Our search over subsets of features halves "
    "the error on three data sets."
)
_SHORTENED = "Our search over subsets of features halves the error on three data sets."


def _render(facts: Mapping[str, Any]) -> Sequence[Message]:
    """Return the task, one example of our own, and the span."""
    return (
        Message("system", _TASK),
        Message("user", as_data(_LONG)),
        Message("assistant", json.dumps({"text": _SHORTENED})),
        Message("user", as_data(facts["text"])),
    )


def _stub(facts: Mapping[str, Any], embed: Embed) -> Json:
    """Return the sentence of the text that is nearest to all of it, at most 200 characters."""
    text = " ".join(str(facts["text"]).split())
    bounds = split_sentences(text)
    parts = [text[a:b].strip() for a, b in pairwise(bounds)]
    parts = [part for part in parts if part] or [text]
    whole, *rows = embed([text, *parts])
    return {"text": parts[int(np.argmax(np.stack(rows) @ whole))][:LONGEST_REPLY] or "-"}


# 256 tokens hold 200 characters of any script in JSON: a reply is never cut off.
SHORTEN = Template("shorten", 1, _SCHEMA, 256, _render, _stub)


class ModelSummariser:
    """One sentence for each of the heaviest spans, written by a language model and verified.

    Parameters
    ----------
    session : with the client's language model; its caps hold
    embed : the client's text encoder
    vectors : [R, d] embeddings of the client's chunks by that encoder
    seconds : after which the model is asked no more

    Attributes
    ----------
    fault : why the model is asked no more; empty while it is
    """

    def __init__(
        self,
        session: Session,
        embed: Embed,
        vectors: NDArray[np.float16],
        seconds: float = math.inf,
    ) -> None:
        self._session, self._embed, self._vectors = session, embed, vectors
        self._end = time.monotonic() + seconds
        self.fault = ""

    def summarise(self, spans: Sequence[Span]) -> tuple[Sentence, ...]:
        """Return at most `MOST` sentences for spans that come heaviest first."""
        covered = spans[:MOST]
        if sum(count_words(span.text) for span in covered) <= SHORT:
            return tuple(quotation(span, "few words") for span in covered)
        return tuple(self._sentence(span, spans) for span in covered)

    def _sentence(self, span: Span, spans: Sequence[Span]) -> Sentence:
        if len(span.text) > LONGEST_SPAN:
            return quotation(span, "too long")
        if time.monotonic() > self._end:
            return quotation(span, "no time")
        reply = self._reply(span)
        if reply is None:
            return quotation(span, "no reply")
        text = _first_sentence(reply)
        if len(reply) >= LONGEST_REPLY and reply.strip().endswith(text):
            return quotation(span, "cut off")
        if fault := refusal(text, span.text):
            return quotation(span, fault)
        if not self._nearest(text, span, spans):
            return quotation(span, "nearer to another span")
        if is_excerpt(span.text, text):
            return quotation(span, "repeated")
        kind = EXCERPT if is_excerpt(text, span.text) else WRITTEN
        return Sentence(span.number, text, kind, self._session.model.name)

    def _reply(self, span: Span) -> str | None:
        """Return what the model says; None where a cap is reached or too many replies failed."""
        if self.fault:
            return None
        try:
            answer = self._session.ask(SHORTEN.fill(text=span.text))
        except UserError as error:
            self.fault = str(error)
            return None
        return None if answer is None else str(answer.value["text"])

    def _nearest(self, text: str, span: Span, spans: Sequence[Span]) -> bool:
        if len(spans) < 2:
            return True
        rows = np.asarray(self._vectors[[other.chunk for other in spans]], np.float32)
        cosines = rows @ self._embed([text])[0] / np.linalg.norm(rows, axis=1).clip(min=1e-12)
        own = next(at for at, other in enumerate(spans) if other.number == span.number)
        return nearest(cosines.tolist(), own, [other.text for other in spans])


def _first_sentence(reply: str) -> str:
    """Return the first sentence of a reply, in one line: a small model goes on after it."""
    text = " ".join(reply.split())
    bounds = split_sentences(text)
    return text[: bounds[1]].strip() if len(bounds) > 1 else text
