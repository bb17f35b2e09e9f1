"""One client's use of a language model in one run: cache, caps, checked replies, counts."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from dance_flwr.config.paths import LEDGER
from dance_flwr.data.card import run_folder
from dance_flwr.errors import UserError
from dance_flwr.llm.cache import FOLDER, Cache, question_sha256
from dance_flwr.llm.call_counts import CallCounts, SharedCallCounts
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.model import Completion, LanguageModel, ReplyError
from dance_flwr.llm.template import Json, Prompt, Template

# Why (decision 21): a published baseline missed scores in quotation marks and took each miss for an
# answer. A larger share of failures is the fault of a model or template and ends the run.
MAX_FAILED = 0.05  # share of answered calls
_FEWEST = 20  # answered calls before that share is checked at every failure
_MAX_REPLY = 1_000_000  # characters


@dataclass(frozen=True)
class Answer:
    """A reply that fits its schema."""

    value: Json
    cached: bool


class Session:
    """Calls a language model within the caps of the run and counts every use.

    As a context manager, it writes the counts and checks the share of failures at its end. Every
    fresh call is written to the file of counts before it is made, so that a killed process does not
    lose it.

    Parameters
    ----------
    model : the back end
    client_folder : folder of the client, with the cache and the folders of its runs
    run : name of the run; if empty, counts are not written
    settings : caps, context and seed; the caps are the smaller of the run's and the client's own

    Attributes
    ----------
    caps : the settings
    """

    def __init__(
        self, model: LanguageModel, client_folder: Path, run: str, settings: LlmConfig
    ) -> None:
        self.model, self.caps = model, settings
        self._cache = Cache(client_folder)
        path = run_folder(client_folder, run) / LEDGER if run else None
        lock = client_folder / FOLDER / "ledger.lock"
        self._shared = SharedCallCounts(path, lock, model.name, model.counted_by)
        self._answers = self._failures = 0  # of this session
        self._reason = ""  # of the last failure

    @property
    def counts(self) -> CallCounts:
        """Counts of the run so far, over all sessions of this client."""
        return self._shared.counts

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # Writes what was counted in memory only, such as cached and capped calls.
        self._shared.update(lambda counts: None)
        self.model.close()
        # Not after another error, which it would hide.
        if kind is None:
            self._check_failures()

    def ask(self, prompt: Prompt) -> Answer | None:
        """Return the answer to a prompt, or None, so that the caller uses its fallback.

        None is returned if a cap is reached or prompt and reply do not fit the context (both count
        as `capped_calls`), and if the reply is unusable.

        Raises
        ------
        UserError : more than one and more than 5 % of this session's replies are unusable, or the
            model cannot be reached
        """
        limit = prompt.template.limit
        key = question_sha256(self.model.name, prompt, limit, self.caps.seed)
        # The cache before the caps: a cached question costs nothing.
        completion = self._cache.find(key)
        value = usable(completion, prompt) if completion else None
        # Why (decision 21): a model that repeats itself would give the unusable reply again; an
        # endpoint may have been repaired under the same name, so it is asked again.
        cached = completion is not None and (value is not None or self.model.repeats)
        if not cached and not self._reserve(prompt, limit):
            # Why (decision 21): a capped call has not failed, as the model did nothing wrong.
            self._shared.unwritten.capped_calls += 1
            return None
        self._answers += 1
        if cached and completion is not None:
            counts = self._shared.unwritten
            counts.cached_calls += 1
            counts.cached_prompt += completion.prompt_tokens
            counts.cached_completion += completion.completion_tokens
        else:
            start = time.perf_counter()
            try:
                completion = self.model.complete(prompt, limit, self.caps.seed)
            except ReplyError as error:
                lost = Completion("", error.prompt_tokens, error.completion_tokens)
                self._shared.update(_spending(lost, start))
                self._fail(str(error))
                return None
            # Spent, whether the reply can be used or not.
            self._shared.update(_spending(completion, start))
            value = usable(completion, prompt)
            if value is not None or self.model.repeats:
                self._cache.keep(key, completion)
        if value is None:
            cut = completion.finish == "length"
            # Not quoted: a reply may hold the client's texts.
            self._fail("cut off at its limit" if cut else "does not fit its schema")
            return None
        return Answer(value, cached)

    def _reserve(self, prompt: Prompt, limit: int) -> bool:
        """Count a fresh call if the caps allow it; its tokens are counted once they are known."""
        caps = self.caps
        if self.counts.fresh_calls >= caps.max_calls:
            return False  # before a tokeniser is loaded
        # With the longest possible reply, as the call must not exceed the cap.
        tokens = self.model.count_prompt(prompt) + limit
        if tokens > caps.context:
            return False

        def reserve(counts: CallCounts) -> bool:
            fits = counts.fresh_tokens + tokens <= caps.max_tokens
            allowed = counts.fresh_calls < caps.max_calls and fits
            # On disk before the call is made: a process that is killed has spent what it spent.
            counts.fresh_calls += allowed
            return allowed

        return self._shared.update(reserve)

    def _fail(self, reason: str) -> None:
        self._failures, self._reason = self._failures + 1, reason
        self._shared.unwritten.failed_calls += 1
        # Early, so that a model that cannot answer does not spend the whole budget first.
        if self._answers >= _FEWEST:
            self._check_failures()

    def _check_failures(self) -> None:
        # Why (decision 21): a single failure is what fallbacks are for.
        if self._failures > max(1, MAX_FAILED * self._answers):
            raise UserError(
                f"{self.model.name}: expected at most {MAX_FAILED:.0%} unusable replies, found "
                f"{self._failures} of {self._answers}, the last one: {self._reason}; choose "
                "another model or `llm.backend`"
            )


def _spending(completion: Completion, start: float) -> Callable[[CallCounts], None]:
    """Return the change of the counts by a call that was made at time `start`."""
    milliseconds = round(1000 * (time.perf_counter() - start))

    def spend(counts: CallCounts) -> None:
        counts.fresh_prompt += completion.prompt_tokens * (1 + completion.resent)
        counts.fresh_completion += completion.completion_tokens
        counts.milliseconds += milliseconds
        counts.resent_calls += completion.resent
        counts.estimated_calls += completion.estimated

    return spend


def usable(completion: Completion, prompt: Prompt) -> Json | None:
    """Return the parsed reply, or None if it does not fit the schema of its template.

    A reply that was cut off at its limit is unusable, as is one with NaN, infinity or text that
    cannot be encoded. A reply that is not JSON of the schema is passed to the template's `parse`.
    """
    if completion.finish == "length" or len(completion.text) > _MAX_REPLY:
        return None
    template = prompt.template
    value = _fitting(json.loads, completion.text, template)
    if value is None and template.parse is not None:
        value = _fitting(template.parse, completion.text, template)
    return value


def _fitting(read: Callable[[str], Any], text: str, template: Template) -> Json | None:
    """Return what `read` makes of a reply if it is an object of the template's schema."""
    try:
        value = read(text)
        # Fails for what no file of JSON in UTF-8 holds: NaN, infinity and lone surrogates, all of
        # which Python reads.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        fits = Draft202012Validator(template.schema).is_valid(value)
    except (ValueError, RecursionError):
        return None
    return value if fits and isinstance(value, dict) else None
