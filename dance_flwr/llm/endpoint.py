"""A server chosen by the client (vLLM, Ollama, llama.cpp, TGI), through the `openai` client.

The server is not trusted: the session checks its replies, its counts of tokens are compared with
the client's own, and neither redirects nor the proxies of the environment are followed. No error of
this module holds a text, a key or an address.
"""

import importlib.util
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from dance_flwr.errors import UserError
from dance_flwr.llm.local_settings import API_KEY, BASE_URL, FILE, LocalSettings, api_key
from dance_flwr.llm.model import Completion, ReplyError
from dance_flwr.llm.template import Prompt

_LIBRARY = "openai"
# A slow server is asked once more only, as each attempt may take the whole time-out.
_ATTEMPTS, _ATTEMPTS_IF_SLOW = 4, 2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds
_CONNECT_SECONDS = 10.0
_MESSAGE_TOKENS = 4  # of a chat template around a message, about
_FACTOR, _MARGIN = 4, 64  # a server's count beyond these of ours is not that of this prompt
_LONGEST_REPLY = 4_000_000  # bytes
# Statuses: try again later, this prompt does not fit, this schema is not supported.
_BUSY, _UNFIT, _SCHEMA_REFUSED = 429, (400, 413, 422), (400, 422, 501)


class Endpoint:
    """The client's own endpoint."""

    def __init__(self, settings: LocalSettings, tokenizer: Callable[[], Any]) -> None:
        for value, key in ((settings.base_url, "base-url"), (settings.model, "model")):
            if not value:
                raise UserError(
                    f"endpoint: expected this client's own {key}, found none; set it in the file "
                    f"of ${FILE}" + (f" or in ${BASE_URL}" if key == "base-url" else "")
                )
        if importlib.util.find_spec(_LIBRARY) is None:
            raise UserError(
                f"endpoint: expected the package {_LIBRARY}, found none; pip install openai"
            )
        api_key()  # one that no header can hold is refused before anything is asked
        self._settings, self._make_tokenizer = settings, tokenizer
        self._schemas = True  # until the server refuses one
        self.name = f"endpoint {settings.model}"
        self.counted_by = "server, else the tokeniser of the client's text encoder"

    def count(self, text: str) -> int:
        """Return the number of tokens of a text under the local tokeniser."""
        encoded = self._tokenizer(text, add_special_tokens=False, verbose=False)
        return len(encoded["input_ids"])

    def count_prompt(self, prompt: Prompt) -> int:
        """Return an estimate of the number of tokens of a prompt."""
        return sum(self.count(message["content"]) + _MESSAGE_TOKENS for message in prompt.chat())

    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the reply, with retries if the server is busy, fails or is slow."""
        # Counted before the call: a prompt that a server has read is spent, whether it answers or
        # not.
        count, resent = self.count_prompt(prompt), 0
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._request(prompt, limit, seed)
            except _RetryError as again:
                resent += again.processed
                last = attempt + 1 == (_ATTEMPTS_IF_SLOW if again.slow else _ATTEMPTS)
                if last:
                    raise ReplyError(f"endpoint: {again}", resent * count) from None
                # What the server asks for, else 0.5, 1 and 2 seconds.
                time.sleep(again.pause or _FIRST_PAUSE * 2**attempt)
            except ReplyError as error:
                raise ReplyError(str(error), resent * count) from None
            else:
                return self._completion(answer, count, limit, resent)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        if client := self.__dict__.pop("_client", None):
            client.close()

    def _request(self, prompt: Prompt, limit: int, seed: int) -> Any:
        """Send a request, without the schema if the server refuses it; return the parsed answer."""
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": prompt.chat(),
            "max_tokens": limit,
            "temperature": 0,
            "seed": seed,
        }
        form = {"name": "reply", "schema": prompt.template.schema, "strict": True}
        # Why (decision 21): servers refuse a schema or ignore it with a line in their log, so that
        # it is a help and no guarantee: the session validates every reply.
        if self._schemas:
            try:
                schema = {"response_format": {"type": "json_schema", "json_schema": form}}
                return self._post(body | schema)
            except _RefusedError as refused:
                if refused.status not in _SCHEMA_REFUSED:
                    raise
        answer = self._post(body)
        # Only now: if the plain request fails as well, the schema was not what the server refused.
        self._schemas = False
        return answer

    def _post(self, body: Mapping[str, Any]) -> Any:
        library = importlib.import_module(_LIBRARY)
        try:
            raw = self._client.chat.completions.with_raw_response.create(**body).http_response
            content = raw.content
        # First, since a time-out is a kind of connection error to the library. `from None`
        # throughout: the library's own errors hold texts and addresses.
        except library.APITimeoutError:
            raise _RetryError("no answer in time", slow=True) from None
        except library.APIStatusError as error:
            raise _of_status(error.status_code, error.response.headers.get("retry-after")) from None
        # Not retried: a server that is not there ends the run with one line.
        except library.APIConnectionError:
            raise UserError(
                "endpoint: expected this client's server to answer, found no connection; start it, "
                f"or correct the base-url in {self._settings.source}"
            ) from None
        if len(content) > _LONGEST_REPLY:
            raise ReplyError("endpoint: too long an answer")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise ReplyError("endpoint: an answer that is no JSON") from None

    def _completion(self, answer: Any, count: int, limit: int, resent: int) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
            finish = str(choice.get("finish_reason") or "stop")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ReplyError("endpoint: an answer of another form", (1 + resent) * count) from None
        if not isinstance(text, str):
            raise ReplyError("endpoint: a reply without text", (1 + resent) * count)
        # A server's count is used if it is near ours: some send none, and a false one would move
        # the caps.
        length = self.count(text)
        usage = answer.get("usage")
        sent = _number(usage, "prompt_tokens", count, count)
        written = _number(usage, "completion_tokens", length, max(length, limit))
        return Completion(
            text,
            count if sent is None else sent,
            length if written is None else written,
            finish,
            resent=resent,
            estimated=sent is None or written is None,
        )

    @cached_property
    def _tokenizer(self) -> Any:
        return self._make_tokenizer()

    @cached_property
    def _client(self) -> Any:
        library, transport = importlib.import_module(_LIBRARY), importlib.import_module("httpx2")
        for name in (_LIBRARY, "httpx2", "httpcore2"):  # on request they log bodies and addresses
            logging.getLogger(name).setLevel(logging.WARNING)
        timeout = transport.Timeout(
            self._settings.timeout, connect=min(_CONNECT_SECONDS, self._settings.timeout)
        )
        # The library's own headers tell the machine's system, for which it starts a process.
        silent = type("Silent", (library.OpenAI,), {"platform_headers": lambda client: {}})
        return silent(
            api_key=api_key(),
            base_url=self._settings.base_url,
            # Why (decision 21): the retries are ours, which count every prompt that was sent.
            max_retries=0,
            timeout=timeout,
            # No proxy, certificate or password file of the environment; no redirect.
            http_client=transport.Client(trust_env=False, follow_redirects=False, timeout=timeout),
        )


class _RetryError(Exception):
    """Raised if the same request may succeed later.

    Attributes
    ----------
    slow : whether the server took too long
    processed : whether the server may have read the prompt
    pause : seconds to wait as requested by the server; 0 if it requested none
    """

    def __init__(
        self, reason: str, *, slow: bool = False, processed: bool = True, pause: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.slow, self.processed, self.pause = slow, processed, pause


class _RefusedError(ReplyError):
    """Raised if the server refused this request and would refuse it again."""

    def __init__(self, status: int) -> None:
        super().__init__(f"endpoint: status {status}")
        self.status = status


def _of_status(status: int, retry_after: str | None) -> Exception:
    """Return the error for an HTTP status."""
    # The server did not read the prompt, so that no token is spent.
    if status == _BUSY or status in (408, 409):
        return _RetryError(f"status {status}", processed=False, pause=_seconds(retry_after))
    if status in _UNFIT or status == 501:
        return _RefusedError(status)
    if status >= 500:
        return _RetryError(f"status {status}", pause=_seconds(retry_after))
    what = {
        401: f"found its key refused; correct ${API_KEY}",
        403: f"found its key refused; correct ${API_KEY}",
        404: f"found no such model or address; correct both in the file of ${FILE}",
    }
    redirected = "found a redirect, which is not followed; name the address where it leads"
    status_found = redirected if status < 400 else what.get(status, f"found status {status}")
    return UserError(f"endpoint: expected this client's server to reply, {status_found}")


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header, bounded; 0 if it has no number."""
    try:
        return min(max(float(text or 0), 0.0), _LONGEST_PAUSE)
    except ValueError:
        return 0.0


def _number(usage: Any, key: str, least: int, highest: int) -> int | None:
    """Return the server's count of tokens; None if it is missing or far from the client's."""
    value = usage.get(key) if isinstance(usage, Mapping) else None
    if type(value) is not int or not least / _FACTOR <= value <= highest * _FACTOR + _MARGIN:
        return None
    return value
