"""Models behind OpenAI's chat completions, and a server that the client chose (vLLM, Ollama, TGI).

The server is not trusted: the session checks its replies, its token counts are compared with the
client's own, and redirects and the proxies of the environment are not followed. No error of this
module contains a text, a key or an address.
"""

import importlib.util
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

from dance_flwr.errors import UserError
from dance_flwr.llm.local_settings import API_KEY, FILE, LocalSettings, api_key
from dance_flwr.llm.model import Completion, LanguageModel, ReplyError
from dance_flwr.llm.template import Prompt

_LIBRARY = "openai"
_MAX_RETRIES = 2  # with the pauses of the `openai` client
_CONNECT_SECONDS = 10.0
_MESSAGE_TOKENS = 4  # of a chat template around a message, about
_FACTOR, _MARGIN = 4, 64  # a server's count beyond these of ours is not that of this prompt


class ChatModel(LanguageModel):
    """A model that a server with OpenAI's chat completions runs.

    Attributes
    ----------
    model : its name at the server
    client : an `openai` client
    extra : further entries of a request
    """

    model = ""
    extra: ClassVar[Mapping[str, Any]] = {}
    _schemas = True  # until the server refuses one
    _unanswered = 0  # attempts of this call that the server may have read

    @property
    def client(self) -> Any:
        """The `openai` client, made when it is first used."""
        raise NotImplementedError

    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the reply at temperature 0, held to the template's schema if the server can."""
        # Counted before the call: tokens that a server has read are spent even without an answer.
        count, self._unanswered = self.count_prompt(prompt), 0
        body: dict[str, Any] = {
            "model": self.model,
            "messages": prompt.chat(),
            "max_tokens": limit,
            # Greedy: the same question has the same reply, so that unusable ones can be cached
            # (decision 21).
            "temperature": 0,
            "seed": seed,
            "extra_body": self.extra,
        }
        try:
            answer = self._request(body, prompt.template.schema)
        except ReplyError as error:
            raise ReplyError(str(error), self._unanswered * count) from None
        resent = self._unanswered * count
        try:
            choice = answer.choices[0]
            text, finish = choice.message.content, str(choice.finish_reason or "stop")
        except (AttributeError, IndexError, TypeError):
            text = finish = None
        if not isinstance(text, str) or finish is None:
            raise ReplyError("endpoint: an answer without a text", count + resent)
        # A server's count is used if it is near ours: some send none, and a false one would change
        # the caps.
        length, usage = self.count(text), getattr(answer, "usage", None)
        sent = _number(usage, "prompt_tokens", count, count)
        written = _number(usage, "completion_tokens", length, max(length, limit))
        return Completion(text, sent + resent, written, finish)

    def _request(self, body: dict[str, Any], schema: Mapping[str, Any]) -> Any:
        """Send a request, without the schema if the server refuses it."""
        # Why (decision 21): servers may refuse or ignore a schema, so the session validates every
        # reply.
        if self._schemas:
            form = {"name": "reply", "schema": schema, "strict": True}
            with suppress(_RefusedError):
                return self._post(
                    body | {"response_format": {"type": "json_schema", "json_schema": form}}
                )
        answer = self._post(body)
        # Only now: if this request failed as well, the schema was not the reason.
        self._schemas = False
        return answer

    def _post(self, body: dict[str, Any]) -> Any:
        library = importlib.import_module(_LIBRARY)
        try:
            return self.client.chat.completions.create(**body)
        # Time-outs first, as they are a kind of connection error to the library. `from None`
        # everywhere, as the library's own errors contain texts and addresses.
        except library.APITimeoutError:
            raise ReplyError("endpoint: no answer in time") from None
        except library.APIStatusError as error:
            raise _of_status(error.status_code) from None
        # A server that is not there ends the run with one line.
        except library.APIConnectionError:
            raise UserError(
                "endpoint: expected this client's server to answer, found no connection; start it, "
                f"or correct the base-url in the file of ${FILE}"
            ) from None
        except (ValueError, RecursionError):
            return None  # not JSON

    def close(self) -> None:
        """Close the connections."""
        if client := self.__dict__.pop("client", None):
            client.close()


def openai_client(key: str, address: str, retries: int, **transport: Any) -> Any:
    """Return an `openai` client that logs no text and uses no proxy of the environment.

    Parameters
    ----------
    transport : arguments of the HTTP client
    """
    library, http = importlib.import_module(_LIBRARY), importlib.import_module("httpx2")
    for name in (_LIBRARY, "httpx2", "httpcore2"):  # they can log bodies and addresses
        logging.getLogger(name).setLevel(logging.WARNING)
    # Without the library's headers about this machine's system.
    silent = type("Silent", (library.OpenAI,), {"platform_headers": lambda client: {}})
    return silent(
        api_key=key,
        base_url=address,
        max_retries=retries,
        timeout=transport["timeout"],
        # No proxy, certificate or password file of the environment.
        http_client=http.Client(trust_env=False, follow_redirects=False, **transport),
    )


class Endpoint(ChatModel):
    """The client's own endpoint."""

    def __init__(self, settings: LocalSettings, tokenizer: Callable[[], Any]) -> None:
        for value, key in ((settings.base_url, "base-url"), (settings.model, "model")):
            if not value:
                raise UserError(
                    f"endpoint: expected this client's own {key}, found none; set it in the file "
                    f"of ${FILE}"
                )
        if importlib.util.find_spec(_LIBRARY) is None:
            raise UserError(
                f"endpoint: expected the package {_LIBRARY}, found none; pip install openai"
            )
        api_key()  # raises for an invalid key, before anything is sent
        self._settings, self._make_tokenizer = settings, tokenizer
        self.model = settings.model
        self.name = f"endpoint {settings.model}"
        self.counted_by = "server, else the tokeniser of the client's text encoder"

    def count(self, text: str) -> int:
        """Return the number of tokens of a text under the local tokeniser."""
        encoded = self._tokenizer(text, add_special_tokens=False, verbose=False)
        return len(encoded["input_ids"])

    def count_prompt(self, prompt: Prompt) -> int:
        """Return an estimate of the number of tokens of a prompt."""
        return sum(self.count(message["content"]) + _MESSAGE_TOKENS for message in prompt.chat())

    @cached_property
    def _tokenizer(self) -> Any:
        return self._make_tokenizer()

    @cached_property
    def client(self) -> Any:
        """The `openai` client of this address."""
        seconds = self._settings.timeout
        timeout = importlib.import_module("httpx2").Timeout(
            seconds, connect=min(_CONNECT_SECONDS, seconds)
        )
        # Why (decision 21): every prompt that was sent counts, also those of retries.
        hooks = {"request": [self._sent], "response": [self._answered]}
        return openai_client(
            *(api_key(), self._settings.base_url, _MAX_RETRIES), timeout=timeout, event_hooks=hooks
        )

    def _sent(self, request: Any) -> None:
        self._unanswered += 1

    def _answered(self, response: Any) -> None:
        # A server that fails with a status such as 500 or 503 may have read the prompt.
        self._unanswered -= response.status_code < 500 or response.status_code == 501


class _RefusedError(ReplyError):
    """Raised if the server refused this request, such as its schema, and would do so again."""


def _of_status(status: int) -> Exception:
    if status in (400, 413, 422, 501):
        return _RefusedError(f"endpoint: status {status}")
    if status in (408, 409, 429) or status >= 500:
        return ReplyError(f"endpoint: status {status}")
    what = {
        401: f"found its key refused; correct ${API_KEY}",
        403: f"found its key refused; correct ${API_KEY}",
        404: f"found no such model or address; correct both in the file of ${FILE}",
    }
    redirected = "found a redirect, which is not followed; name the address where it leads"
    status_found = redirected if status < 400 else what.get(status, f"found status {status}")
    return UserError(f"endpoint: expected this client's server to reply, {status_found}")


def _number(usage: Any, key: str, ours: int, highest: int) -> int:
    """Return the server's count of tokens, or ours if it is missing or far from it."""
    value = getattr(usage, key, None)
    if type(value) is not int or not ours / _FACTOR <= value <= highest * _FACTOR + _MARGIN:
        return ours
    return value
