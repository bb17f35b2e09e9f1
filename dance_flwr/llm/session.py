"""One client's use of a language model in one run: cache, caps, checked replies, counts."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

from jsonschema import Draft202012Validator

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.embedding_check import own_encoder
from dance_flwr.config.paths import LEDGER
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.data.text.encoder import loaded
from dance_flwr.disk import private_lock, write_json
from dance_flwr.errors import UserError
from dance_flwr.llm.config import EMBEDDED, STUB, LlmConfig
from dance_flwr.llm.embedded import Embedded, model_file
from dance_flwr.llm.endpoint import Endpoint
from dance_flwr.llm.local_settings import local_settings
from dance_flwr.llm.model import Completion, LanguageModel, ReplyError, Stub
from dance_flwr.llm.template import Embed, Json, Prompt

_NAMES = ("model", "counted_by")
_AND = " + "  # between the names of two models


@dataclass
class CallCounts:
    """Calls and tokens of one client in one run.

    Attributes
    ----------
    fresh_calls, cached_calls : calls that a model answered, and those that the cache answered
    failed_calls : fresh and cached calls without a usable reply; their tokens are counted too
    capped_calls : calls that were not made, because a cap was reached or prompt and reply do not
        fit the context
    fresh_prompt, fresh_completion, cached_prompt, cached_completion : tokens
    milliseconds : of fresh calls
    model, counted_by : names of the models and of the tokenisers, joined by " + "
    """

    fresh_calls: int = 0
    cached_calls: int = 0
    failed_calls: int = 0
    capped_calls: int = 0
    fresh_prompt: int = 0
    fresh_completion: int = 0
    cached_prompt: int = 0
    cached_completion: int = 0
    milliseconds: int = 0
    model: str = ""
    counted_by: str = ""

    @property
    def fresh_tokens(self) -> int:
        """Number of tokens that count towards the cap."""
        return self.fresh_prompt + self.fresh_completion

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the counts at `path`, zeros if the file is missing or damaged."""
        try:
            content = json.loads(path.read_text("utf-8"))
            counts = {name: content.get(name, 0) for name in _counts()}
            model, counted_by = (str(content.get(name, "")) for name in _NAMES)
        except (OSError, ValueError, AttributeError, RecursionError):
            return cls()
        # `type` and not `isinstance`, to which a JSON true is an integer.
        if not all(type(count) is int and count >= 0 for count in counts.values()):
            return cls()
        return cls(**counts, model=model, counted_by=counted_by)

    def save(self, path: Path) -> None:
        """Write the counts atomically."""
        write_json(path, asdict(self))

    def __add__(self, other: "CallCounts") -> "CallCounts":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _counts()}
        model = _joined(self.model, other.model)
        return CallCounts(
            **sums, model=model, counted_by=_joined(self.counted_by, other.counted_by)
        )


def _counts() -> list[str]:
    return [item.name for item in fields(CallCounts) if item.name not in _NAMES]


def _joined(*names: str) -> str:
    return _AND.join(dict.fromkeys(part for name in names for part in name.split(_AND) if part))


FOLDER = "llm"  # in a client's folder
# Bounds the memory that a damaged or foreign file can take; replies are far shorter.
_LARGEST_FILE = 8_000_000  # bytes


def question_sha256(model: str, prompt: Prompt, limit: int, seed: int) -> str:
    """Return the key of a question, the sha256 of everything that its reply depends on."""
    # Why (decision 21): the key contains everything that a reply depends on. The model's name has
    # the back end, its version and the hash of its weights; a changed wording needs another version
    # of the template.
    template = prompt.template
    content = {
        "model": model,
        "template": [template.name, template.version],
        "messages": [[message.role, message.text] for message in prompt.messages],
        "schema": template.schema,
        # A shorter limit may cut the same reply off.
        "limit": limit,
        "temperature": 0,
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Cache:
    """Cached replies in `llm/` of a client's folder; each file has a hash of question and reply."""

    def __init__(self, client_folder: Path) -> None:
        self._folder = client_folder / FOLDER

    def find(self, key: str) -> Completion | None:
        """Return the cached reply; None if there is none, or its file is damaged or misplaced."""
        path = self._path(key)
        try:
            if path.stat().st_size > _LARGEST_FILE:
                return None
            entry = json.loads(path.read_text("utf-8"))
            digest = entry.pop("sha256")
            return Completion(**entry) if digest == _digest(key, entry) else None
        # Unreadable files count as missing, so the question is asked and written again.
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def keep(self, key: str, completion: Completion) -> None:
        """Write a reply atomically."""
        entry = asdict(completion)
        write_json(self._path(key), entry | {"sha256": _digest(key, entry)})

    def _path(self, key: str) -> Path:
        # Folders by the first two digits, so that none has too many files.
        return self._folder / key[:2] / f"{key}.json"


def _digest(key: str, entry: Json) -> str:
    return hashlib.sha256(json.dumps([key, entry], sort_keys=True).encode()).hexdigest()


# Why (decision 21): a published baseline missed scores in quotation marks and took each miss for an
# answer. A larger share of failures is the fault of a model or template and ends the run.
MAX_FAILED = 0.05  # share of answered calls
_FEWEST = 20  # answered calls before that share is checked at every failure
_MAX_REPLY = 1_000_000  # characters


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
        self._path = run_folder(client_folder, run) / LEDGER if run else None
        self._lock = client_folder / FOLDER / "ledger.lock"
        self._stored = CallCounts.load(self._path) if self._path else CallCounts()
        # What this session has counted since it last wrote, so that no count is lost.
        self._unwritten = CallCounts(model=model.name, counted_by=model.counted_by)
        self._answers = self._failures = 0  # of this session
        self._reason = ""  # of the last failure

    @property
    def counts(self) -> CallCounts:
        """Counts of the run so far, over all sessions of this client, as far as they are known."""
        return self._stored + self._unwritten

    @contextmanager
    def _shared(self) -> Iterator[CallCounts]:
        """Yield the counts of the run to be changed, and write them.

        Several processes of this client may do so at once: each reads again what others wrote.
        """
        with private_lock(self._lock) if self._path else nullcontext():
            stored = CallCounts.load(self._path) if self._path else self._stored
            self._stored = stored + self._unwritten
            self._unwritten = CallCounts(model=self.model.name, counted_by=self.model.counted_by)
            yield self._stored
            if self._path:
                self._stored.save(self._path)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._shared():
            pass  # writes what was counted in memory only, such as cached and capped calls
        self.model.close()
        # Not after another error, which it would hide.
        if kind is None:
            self._check_failures()

    def ask(self, prompt: Prompt) -> Json | None:
        """Return the parsed reply to a prompt, or None, so that the caller uses its fallback.

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
            self._unwritten.capped_calls += 1
            return None
        self._answers += 1
        fault = "does not fit its schema"  # not quoted: a reply may hold the client's texts
        if cached and completion is not None:
            self._unwritten.cached_calls += 1
            self._unwritten.cached_prompt += completion.prompt_tokens
            self._unwritten.cached_completion += completion.completion_tokens
        else:
            start, unanswered = time.perf_counter(), False
            try:
                completion = self.model.complete(prompt, limit, self.caps.seed)
            except ReplyError as error:
                completion = Completion("", error.prompt_tokens, error.completion_tokens)
                fault, unanswered = str(error), True
            # Spent, whether there is a reply that can be used or not.
            with self._shared() as counts:
                counts.fresh_prompt += completion.prompt_tokens
                counts.fresh_completion += completion.completion_tokens
                counts.milliseconds += round(1000 * (time.perf_counter() - start))
            value = usable(completion, prompt)
            if value is not None or (self.model.repeats and not unanswered):
                self._cache.keep(key, completion)
        if value is None:
            self._fail("cut off at its limit" if completion.finish == "length" else fault)
        return value

    def _reserve(self, prompt: Prompt, limit: int) -> bool:
        """Count a fresh call if the caps allow it; its tokens are counted once they are known."""
        caps = self.caps
        if self.counts.fresh_calls >= caps.max_calls:
            return False  # before a tokeniser is loaded
        # With the longest possible reply, as the call must not exceed the cap.
        tokens = self.model.count_prompt(prompt) + limit
        if tokens > caps.context:
            return False

        with self._shared() as counts:
            fits = counts.fresh_tokens + tokens <= caps.max_tokens
            allowed = counts.fresh_calls < caps.max_calls and fits
            # On disk before the call is made: a process that is killed has spent what it spent.
            counts.fresh_calls += allowed
        return allowed

    def _fail(self, reason: str) -> None:
        self._failures, self._reason = self._failures + 1, reason
        self._unwritten.failed_calls += 1
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


def usable(completion: Completion, prompt: Prompt) -> Json | None:
    """Return the parsed reply, or None if it does not fit the schema of its template.

    A reply that was cut off at its limit is unusable, as is one with NaN, infinity or text that
    cannot be encoded.
    """
    if completion.finish == "length" or len(completion.text) > _MAX_REPLY:
        return None
    try:
        value = json.loads(completion.text)
        # Fails for what no file of JSON in UTF-8 holds: NaN, infinity and lone surrogates, all of
        # which Python reads.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        fits = Draft202012Validator(prompt.template.schema).is_valid(value)
    except (ValueError, RecursionError):
        return None
    return value if fits and isinstance(value, dict) else None


def open_session(data: ClientData, config: RunConfig, run: str) -> Session:
    """Return a session with the back end of the run and the client's own model.

    The smaller of the run's and the client's caps applies.

    Raises
    ------
    UserError : the client has no such model
    """
    settings, local = LlmConfig.of(config), local_settings()
    model: LanguageModel
    if settings.backend == STUB:
        model = Stub(embedder(data))
    elif settings.backend == EMBEDDED:
        model = Embedded(*model_file(local), settings.context, config.torch_threads)
    else:
        # Why (decision 21): nothing is known of the tokeniser behind an endpoint, so that of the
        # client's text encoder counts. It is loaded when a prompt is first counted.
        model = Endpoint(local, lambda: own_encoder(data).load_tokenizer())
    # Why (decision 21): a cap is better than a refusal, as every user of a model has a fallback.
    calls = min(settings.max_calls, local.max_calls)
    tokens = min(settings.max_tokens, local.max_tokens)
    capped = replace(settings, max_calls=calls, max_tokens=tokens)
    return Session(model, data.folder, run, capped)


def embedder(data: ClientData) -> Embed:
    """Return the client's text encoder, loaded when it is first used; nothing is downloaded.

    Texts are encoded as the client's chunks were, in the same precision: texts -> float32 [m, d],
    rows of norm 1. A text longer than the encoder reads is cut off by it.
    """
    return lambda texts: loaded(own_encoder(data)).encode(texts)
