"""Summaries of a run's final core: in the client's folder, beside the packs, under their seal."""

import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dance_flwr import events
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import write_json
from dance_flwr.errors import DataError, UserError
from dance_flwr.evidence.grounding import is_excerpt, refusal
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.summaries.quotes import (
    EXCERPT,
    KINDS,
    QUOTED,
    WRITTEN,
    ExtractiveSummariser,
    Sentence,
    no_model,
    quotation,
    spans_of,
)

LOG = logging.getLogger("flwr")
FORMAT = 1
_KEYS = {"span", "kind", "author", "reason"}


@dataclass(frozen=True)
class Summaries:
    """Summaries of the packs of one refresh.

    Attributes
    ----------
    model_id : fingerprint of the model whose packs they are of
    of_node : local number of a node -> its sentences; a quotation has no text here
    """

    model_id: str
    of_node: Mapping[int, tuple[Sentence, ...]]

    @property
    def kinds(self) -> Counter[str]:
        """Number of sentences by kind."""
        return Counter(sentence.kind for _, sentence in self.sentences())

    @property
    def reasons(self) -> Counter[str]:
        """Number of quotations by the reason for them."""
        return Counter(s.reason for _, s in self.sentences() if s.kind == QUOTED)

    def sentences(self) -> Iterator[tuple[int, Sentence]]:
        """Yield every sentence with its node."""
        for node, sentences in self.of_node.items():
            yield from ((node, sentence) for sentence in sentences)

    def save(self, path: Path) -> None:
        """Write them atomically; a span is quoted from its text, which is not written again."""
        nodes = {
            str(node): [
                {key: getattr(sentence, key) for key in sorted(_KEYS)}
                | ({} if sentence.kind == QUOTED else {"text": sentence.text})
                for sentence in sentences
            ]
            for node, sentences in self.of_node.items()
        }
        write_json(path, {"format": FORMAT, "model_id": self.model_id, "nodes": nodes})

    @classmethod
    def load(cls, path: Path) -> "Summaries | None":
        """Read summaries; None where there is no file.

        Raises
        ------
        DataError : it is damaged or of another format
        """
        if not path.is_file():
            return None
        try:
            raw = json.loads(path.read_text("utf-8"))
            if raw["format"] != FORMAT:
                raise ValueError(f"format {raw['format']!r}")
            nodes = {
                int(node): tuple(_sentence(entry) for entry in entries)
                for node, entries in raw["nodes"].items()
            }
            return cls(str(raw["model_id"]), nodes)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: expected summaries of format {FORMAT}, found others "
                f"({type(error).__name__}); copy the client's folder again, or run again"
            ) from None

    def of(self, packs: Packs, row: int, texts: list[str]) -> tuple[Sentence, ...]:
        """Return the summary of a pack with its quotations, extractive where none is kept.

        Raises
        ------
        DataError : it cites a span that the pack does not have
        """
        node, spans = int(packs.nodes[row]), spans_of(packs, row, texts)
        if self.model_id != packs.model_id or node not in self.of_node:
            return ExtractiveSummariser().summarise(spans)
        kept = self.of_node[node]
        if not all(1 <= sentence.span <= len(spans) for sentence in kept):
            raise DataError(
                f"summary of node number {node}: expected spans 1 to {len(spans)}, found "
                f"{[sentence.span for sentence in kept]}; it was altered"
            )
        return tuple(
            quotation(spans[s.span - 1], s.reason) if s.kind == QUOTED else s for s in kept
        )


def _sentence(entry: Mapping[str, object]) -> Sentence:
    span, kind = entry["span"], str(entry["kind"])
    if not isinstance(span, int) or kind not in KINDS:
        raise ValueError(f"span {span!r}, kind {kind!r}")
    text = "" if kind == QUOTED else str(entry["text"])
    return Sentence(span, text, kind, str(entry["author"]), str(entry["reason"]))


def write_summaries(
    folder: RunFolder, data: ClientData, packs: Packs, config: RunConfig, run: str
) -> Summaries:
    """Summarise all packs of a core with the client's language model, and write the summaries.

    Where the client has no model, a cap is reached, too many replies are unusable or the time is
    up, the spans are quoted; nothing of a run depends on its summaries. The server waits
    `round-timeout` seconds for all clients, which may share one machine: each takes at most its
    share of half of them.
    """
    rows, seconds = range(len(packs.nodes)), config.round_timeout / 2 / config.clients
    found = _summarise(data, packs, rows, config, run, seconds)
    nodes = packs.nodes.tolist()
    written = Summaries(packs.model_id, dict(zip(nodes, found, strict=True)))
    written.save(folder.summaries_path)
    message = f"{len(nodes)} summaries: {share_line(written.kinds)}"
    events.emit("summaries_written", message, nodes=len(nodes), **written.kinds)
    return written


def summarise_pack(
    data: ClientData, packs: Packs, row: int, config: RunConfig, run: str
) -> tuple[Sentence, ...]:
    """Return the summary of one pack by the client's language model, as `write_summaries` would."""
    return _summarise(data, packs, [row], config, run)[0]


def _summarise(
    data: ClientData,
    packs: Packs,
    rows: Sequence[int],
    config: RunConfig,
    run: str,
    seconds: float = math.inf,
) -> list[tuple[Sentence, ...]]:
    from dance_flwr.evidence.summaries.language_model import ModelSummariser
    from dance_flwr.llm.factory import embedder, open_session

    texts = data.texts()
    spans = [spans_of(packs, row, texts) for row in rows]
    found: list[tuple[Sentence, ...]] = []
    try:
        with open_session(data, config, run) as session:
            summariser = ModelSummariser(
                session, embedder(data, config), data.bank.embeddings, seconds
            )
            found = [summariser.summarise(own) for own in spans]
    except UserError as error:
        LOG.warning("client %d, summaries: %s", data.card.client, error)
    return found or [no_model(own) for own in spans]


def check_model(data: ClientData, config: RunConfig) -> None:
    """Open the client's language model, as summaries will.

    Raises
    ------
    UserError : the client has none; why is in its own log only, since the server reads the error
    """
    from dance_flwr.llm.factory import open_session

    try:
        open_session(data, config, "")
    except UserError as error:
        LOG.warning("client %d: %s", data.card.client, error)
        raise UserError(
            f"client {data.card.client}: expected a language model for llm.summaries = core, found "
            "none; the client's log says why, docs/llm.md what to install"
        ) from None


def share_line(kinds: Mapping[str, int]) -> str:
    """Return in words how many sentences were kept, and how many spans quoted."""
    total = sum(kinds.values())
    if not total:
        return "no sentences"
    share = {kind: f"{kinds.get(kind, 0) / total:.0%}" for kind in KINDS}
    return (
        f"{total:,} sentences, {share[WRITTEN]} written and checked, {share[EXCERPT]} quoted in "
        f"part, {share[QUOTED]} quoted"
    )


def verify_summaries(packs: Packs, summaries: Summaries, texts: list[str]) -> int:
    """Check every sentence that a model wrote or chose against its span again, by its words.

    Returns the number of sentences.

    Raises
    ------
    UserError : names the first one that its span does not bear out
    """
    count = 0
    for row, node in enumerate(packs.nodes.tolist()):
        spans = spans_of(packs, row, texts)
        for sentence in summaries.of(packs, row, texts):
            source, count = spans[sentence.span - 1].text, count + 1
            if sentence.kind == QUOTED:
                continue
            fault = refusal(sentence.text, source)
            if fault or is_excerpt(sentence.text, source) != (sentence.kind == EXCERPT):
                raise UserError(
                    f"summary of node number {node}: expected a sentence that span {sentence.span} "
                    f"bears out, found one that fails on {fault or 'its kind'}; it was altered"
                )
    return count
