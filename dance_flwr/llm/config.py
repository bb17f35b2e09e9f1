"""Configuration of the language model, the part that a run may set.

Which model file or endpoint answers is the client's choice, see `dance_flwr.llm.local_settings`.
"""

from dataclasses import dataclass

from dance_flwr.config.options import Section, option

EMBEDDED, ENDPOINT, STUB = "embedded", "endpoint", "stub"
OFF, CORE = "off", "core"


@dataclass(frozen=True)
class LlmConfig(Section):
    """Keys of the language model."""

    name = "llm"

    # Why (decision 21): a run says how a model answers and how often. Which host, file and key are
    # used is no key of a run, because the server sends a run's configuration to every client.
    backend: str = option(
        # By default no server is needed, and no text leaves the client's machine.
        EMBEDDED,
        "language model of each client: a GGUF file (embedded), a server that it names "
        "(endpoint), or replies computed from the encoder (stub)",
        choices=(EMBEDDED, ENDPOINT, STUB),
    )
    # Off by default: with 135M parameters a model can shorten a span, but not much more
    # (docs/llm.md).
    summaries: str = option(
        OFF,
        "summaries of evidence: none, or of every core node at the end of a run",
        choices=(OFF, CORE),
    )
    # Bounds of the run; those of a client lower them without refusing the run (decision 21).
    max_calls: int = option(1000, "maximum number of new calls per client and run", ge=0)
    max_tokens: int = option(
        500_000, "maximum number of new tokens per client and run, prompts and replies", ge=0
    )
    # Some servers cut a longer prompt silently, so that the client has to check (docs/llm.md).
    context: int = option(
        2048, "maximum number of tokens of a prompt and its reply", ge=256, le=32_768
    )
    seed: int = option(0, "seed of the language model", ge=0)
