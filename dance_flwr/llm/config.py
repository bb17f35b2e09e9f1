"""Configuration of the language model, the part that a run may set.

Which model file or endpoint answers is the client's choice, see `dance_flwr.llm.local_settings`.
"""

from dataclasses import dataclass

from dance_flwr.config.options import Section, option

EMBEDDED, ENDPOINT, STUB = "embedded", "endpoint", "stub"
OFF, ON_DEMAND, CORE = "off", "on-demand", "core"


@dataclass(frozen=True)
class LlmConfig(Section):
    """Keys of the language model that methods and summaries ask."""

    name = "llm"

    backend: str = option(
        EMBEDDED,
        "language model of each client: embedded = a GGUF file on its machine, endpoint = the "
        "server it names itself, stub = replies computed from the text encoder, for tests",
        choices=(EMBEDDED, ENDPOINT, STUB),
    )
    summaries: str = option(
        OFF,
        "summaries of evidence: on-demand = in `evidence show`, core = of every core node at the "
        "end of a run",
        choices=(OFF, ON_DEMAND, CORE),
    )
    max_calls: int = option(
        1000, "maximum number of fresh calls per client and run; beyond it, fallbacks", least=0
    )
    max_tokens: int = option(
        500_000, "maximum number of fresh tokens, prompt and reply, per client and run", least=0
    )
    context: int = option(
        2048, "most tokens of a prompt and its reply together", least=256, most=32_768
    )
    seed: int = option(0, "seed of the language model", least=0)
