"""A method that asks a language model three questions a round, answered by the stub."""

from dataclasses import replace

from dance_flwr.config.plugins import METHODS
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.session import open_session
from dance_flwr.methods import get_spec
from dance_flwr.methods.whole_graph import FedAvgFull
from support.prompts import prompt

QUESTIONS = 3


class Asking(FedAvgFull):
    """FedAvg's training, after the questions."""

    def train(self, model, data, config, info):
        """Ask, and train."""
        with open_session(data, config, info.run) as session:
            for node in range(QUESTIONS):
                session.ask(prompt(f"node {node}"))
        return super().train(model, data, config, info)

    def planned_calls(self, data, config):
        """Return the questions, with 20 tokens each."""
        return QUESTIONS, 20 * QUESTIONS


CARD = replace(get_spec("fedavg-full").card, needs_llm=True)
SPEC = replace(get_spec("fedavg-full"), client=Asking, card=CARD, sections=(LlmConfig,))


def register(monkeypatch, name="llm4rgnn", spec=SPEC):
    """Let `name` be this method."""
    monkeypatch.delitem(METHODS._external, name, raising=False)
    monkeypatch.setitem(METHODS.builtin, name, spec)
