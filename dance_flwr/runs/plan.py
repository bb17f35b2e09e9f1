"""Estimate the calls of language models in a run, before any token is spent."""

from dataclasses import dataclass
from pathlib import Path

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.nodes import core_budget
from dance_flwr.llm.config import CORE, LlmConfig
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import AskingMethod

# Tokens of a summary beside its chunks: the instruction, and a reply of two sentences.
_INSTRUCTION, _REPLY = 200, 120


@dataclass(frozen=True)
class Calls:
    """Upper bounds of the calls of one client in a run.

    Attributes
    ----------
    calls, tokens : of prompts and replies, within `llm.max-calls` and `llm.max-tokens`, including
        those in the client's cache, which cost nothing
    capped : whether the method would ask more
    """

    client: int
    nodes: int
    calls: int
    tokens: int
    capped: bool = False


def asks(config: RunConfig) -> bool:
    """Whether a run asks a language model, for its method or for summaries of core nodes."""
    return get_spec(config.method).card.needs_llm or summarises(config)


def summarises(config: RunConfig) -> bool:
    """Whether a run summarises the evidence of its core nodes."""
    known = LlmConfig in get_spec(config.method).sections
    return known and LlmConfig.of(config).summaries == CORE


def planned_calls(config: RunConfig, partition: Path) -> list[Calls]:
    """Return the calls of every client of a prepared partition, without making any."""
    return [_of_client(config, partition / f"client-{k}") for k in range(config.clients)]


def _of_client(config: RunConfig, folder: Path) -> Calls:
    data = ClientData.of(folder, config)
    settings, method = LlmConfig.of(config), get_spec(config.method).make_client()
    if isinstance(method, AskingMethod):
        calls, tokens = method.planned_calls(data, config)
    elif summarises(config):
        calls, tokens = _summaries(data, config)
    else:  # only the caps bound the method
        calls, tokens = settings.max_calls, settings.max_tokens
    # Whatever the method would ask, a client stops at its caps (decision 21).
    bounded = min(calls, settings.max_calls), min(tokens, settings.max_tokens)
    return Calls(data.card.client, data.num_nodes, *bounded, capped=bounded != (calls, tokens))


def _summaries(data: ClientData, config: RunConfig) -> tuple[int, int]:
    settings = DanceConfig.of(config)
    core = core_budget(data.num_nodes, config.condensation_ratio, settings.batch_nodes)
    chunk = float(data.bank.tokens.mean()) if len(data.bank.tokens) else 0.0
    return core, round(core * (settings.chunk_budget * chunk + _INSTRUCTION + _REPLY))
