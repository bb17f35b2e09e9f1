"""Open the session of a client, with the back end of its run."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.text.bank_slice import read_meta
from dance_flwr.data.text.encoder import EncoderSpec, loaded, resolve_local
from dance_flwr.errors import DataError
from dance_flwr.llm.config import EMBEDDED, STUB, LlmConfig
from dance_flwr.llm.embedded import Embedded, model_file
from dance_flwr.llm.endpoint import Endpoint
from dance_flwr.llm.local_settings import local_settings
from dance_flwr.llm.model import LanguageModel, Stub
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import Embed


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
        model = Stub(embedder(data, config))
    elif settings.backend == EMBEDDED:
        model = Embedded(model_file(local), settings.context, config.torch_threads)
    else:
        # Why (decision 21): nothing is known of the tokeniser behind an endpoint, so that of the
        # client's text encoder counts. It is loaded when a prompt is first counted.
        model = Endpoint(local, lambda: _spec(*_named(data)).load_tokenizer())
    # Why (decision 21): a cap is better than a refusal, as every user of a model has a fallback.
    calls = min(settings.max_calls, local.max_calls)
    tokens = min(settings.max_tokens, local.max_tokens)
    capped = replace(settings, max_calls=calls, max_tokens=tokens)
    return Session(model, data.folder, run, capped)


def embedder(data: ClientData, config: RunConfig) -> Embed:
    """Return the client's text encoder, loaded when it is first used; nothing is downloaded.

    Texts are encoded as the client's chunks were, in the same precision: texts -> float32 [m, d],
    rows of norm 1. A text longer than the encoder reads is cut off by it.
    """
    # Read now, so that a client whose encoder is unknown is refused before its first text.
    named = _named(data)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return loaded(_spec(*named)).encode(texts)

    return embed


def _named(data: ClientData) -> tuple[str, str, str, str]:
    """Return name, precision, sha256 of the weights and fingerprint of a client's encoder."""
    meta = read_meta(data.folder / "text")
    keys = ("encoder", "precision", "weights_sha256", "encoder_fingerprint")
    try:
        name, precision, weights, fingerprint = (str(meta[key]) for key in keys)
    except KeyError as error:
        raise DataError(
            f"{data.folder / 'text'}: expected {error} of the encoder, found none; "
            "encode the texts again"
        ) from None
    return name, precision, weights, fingerprint


def _spec(name: str, precision: str, weights: str, fingerprint: str) -> EncoderSpec:
    """Return the encoder with this name after checking its files; it is not loaded."""
    try:
        spec = resolve_local(name, precision, weights)
    except OSError as error:
        raise DataError(
            f"encoder {name!r}: expected its files on this machine, found {type(error).__name__}; "
            "encode the client's texts again here"
        ) from None
    # Vectors of two encoders cannot be compared: new texts need the files that encoded the chunks.
    if spec.fingerprint != fingerprint:
        raise DataError(
            f"encoder {name!r}: expected the files that encoded the client's texts, found others; "
            "install that version again, or encode the texts again"
        )
    return spec
