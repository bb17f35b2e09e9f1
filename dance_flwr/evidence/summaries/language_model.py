"""Summaries that a client's language model writes, sentence by sentence, behind a verifier.

The model is asked once for each of the heaviest spans, and shown nothing else. A sentence that is
not grounded in its span (`grounding`) is replaced by the span, so that a model that writes nonsense
leaves the extractive summary.
"""

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.text.chunking import split_sentences
from dance_flwr.errors import UserError, counted
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.summaries.grounding import count_words, refusal
from dance_flwr.evidence.summaries.summary import (
    MAX_SENTENCES,
    Sentence,
    Span,
    Summaries,
    quotation,
    quote,
    spans_of,
)
from dance_flwr.llm.session import Session, open_session
from dance_flwr.llm.template import DATA_NOTE, Embed, Json, Message, Template, as_data

LOG = logging.getLogger("flwr")
# Spans of no more words together are as short as a summary of them: they are quoted without a call.
MIN_WORDS = 30
MAX_REPLY_CHARS = 200
MAX_SPAN_CHARS = 4000  # a longer span, such as a single endless word, is quoted

_SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": MAX_REPLY_CHARS}},
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
    return {"text": parts[int(np.argmax(np.stack(rows) @ whole))][:MAX_REPLY_CHARS] or "-"}


# 256 tokens hold 200 characters of any script in JSON: a reply is never cut off.
SHORTEN = Template("shorten", 1, _SCHEMA, 256, _render, _stub)


class ModelSummariser:
    """One sentence for each of the heaviest spans, written by a language model and verified.

    Parameters
    ----------
    session : with the client's language model; its caps hold
    seconds : after which the model is asked no more

    Attributes
    ----------
    fault : why the model is asked no more; empty while it is
    """

    def __init__(self, session: Session, seconds: float = math.inf) -> None:
        self._session, self._end, self.fault = session, time.monotonic() + seconds, ""

    def summarise(self, spans: Sequence[Span]) -> tuple[Sentence, ...]:
        """Return at most `MAX_SENTENCES` sentences for spans that come heaviest first."""
        heaviest = spans[:MAX_SENTENCES]
        # A summary of few words would be no shorter than they are.
        if sum(count_words(span.text) for span in heaviest) <= MIN_WORDS:
            return quote(spans)
        return tuple(self._sentence(span) for span in heaviest)

    def _sentence(self, span: Span) -> Sentence:
        reply = self._reply(span)
        text = _first_sentence(reply)
        # A reply of the greatest length may end within its sentence.
        is_cut = len(reply) >= MAX_REPLY_CHARS and reply.strip().endswith(text)
        if not reply or is_cut or refusal(text, span.text):
            return quotation(span)
        return Sentence(span.number, text, self._session.model.name)

    def _reply(self, span: Span) -> str:
        """Return the reply of the model; "" if there is none."""
        if self.fault or time.monotonic() > self._end or len(span.text) > MAX_SPAN_CHARS:
            return ""
        try:
            answer = self._session.ask(SHORTEN.fill(text=span.text))
        # Why no error (decision 21): every user of a model has a declared fallback, here the span.
        except UserError as error:
            self.fault = str(error)
            return ""
        return str(answer["text"]) if answer else ""


def _first_sentence(reply: str) -> str:
    """Return the first sentence of a reply, in one line: a small model goes on after it."""
    text = " ".join(reply.split())
    bounds = split_sentences(text)
    return text[: bounds[1]].strip() if len(bounds) > 1 else text


def write_summaries(
    folder: RunFolder, data: ClientData, packs: Packs, config: RunConfig, run: str
) -> Summaries:
    """Summarise all packs of a core with the client's language model, and write the summaries.

    Spans are quoted where the client has no model, a cap is reached, too many replies are unusable
    or the time is up: nothing of a run depends on its summaries.
    """
    texts, written = data.texts(), dict[int, tuple[Sentence, ...]]()
    # Why (decision 21): the server waits `round-timeout` seconds for all clients, or an hour for
    # most of them where that is 0, and they may share one machine. Half is for everything else; the
    # rest is divided equally.
    seconds = (config.round_timeout or 3600.0) / 2 / config.clients
    try:
        with open_session(data, config, run) as session:
            summariser = ModelSummariser(session, seconds)
            for row, node in enumerate(packs.nodes.tolist()):
                found = summariser.summarise(spans_of(packs, row, texts))
                if own := tuple(sentence for sentence in found if sentence.author):
                    written[node] = own
    except UserError as error:
        LOG.warning("client %d, summaries: %s", data.card.client, error)
        written.clear()
    summaries = Summaries(packs.model_id, written)
    summaries.save(folder.summaries_path)
    nodes, count = len(packs.nodes), sum(map(len, written.values()))
    message = f"{counted(nodes, 'summary', 'summaries')}: {counted(count, 'sentence')} written"
    events.emit("summaries_written", message, nodes=nodes, written=count)
    return summaries


def check_model(data: ClientData, config: RunConfig) -> None:
    """Check that the client has a language model for summaries."""
    try:
        open_session(data, config, "")
    except UserError as error:
        # Why (decision 21): the server reads the error that is raised, and the reason may name
        # files and hosts of the client. It goes to the client's own log alone.
        LOG.warning("client %d: %s", data.card.client, error)
        raise UserError(
            f"client {data.card.client}: expected a language model for llm.summaries = core, found "
            "none; the client's log says why, docs/llm.md what to install"
        ) from None
