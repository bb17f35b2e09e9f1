"""The calls and tokens that a client will spend in a run, before any is spent."""

from math import ceil

from dance_flwr.baselines.llm4fgl.config import Llm4FglConfig
from dance_flwr.baselines.llm4fgl.generation import origins_of
from dance_flwr.baselines.llm4fgl.prompts import LIMIT
from dance_flwr.baselines.llm4fgl.writing import Task, prompts_of
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig

_CHARACTERS = 4  # of English text per token


def planned_calls(data: ClientData, config: RunConfig) -> tuple[int, int]:
    """Return the most calls and tokens of a client: every text once, and R shares of them anew.

    Prompts are rendered and counted as one token per four characters, replies as their limit, and
    a draft as the longest. Caps are not read; cached replies cost nothing.
    """
    settings = Llm4FglConfig.of(config)
    if config.rounds <= settings.predictor_rounds:
        return 0, 0
    origins = origins_of(data, settings.ratio_of_nodes)
    first = [_tokens(prompt.text) + LIMIT for prompt in prompts_of(Task(origins), data)]
    drafts = Task(origins, ["x" * 4 * LIMIT] * len(first))
    again = [_tokens(prompt.text) + LIMIT for prompt in prompts_of(drafts, data)]
    poor = round(settings.rewritten_ratio * len(first))
    reflections = settings.reflections_before(config.rounds)
    calls = len(first) + reflections * poor
    return calls, sum(first) + reflections * sum(sorted(again, reverse=True)[:poor])


def _tokens(text: str) -> int:
    return ceil(len(text) / _CHARACTERS)
