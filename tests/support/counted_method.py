"""A method that asks a language model three questions a round, answered by the stub."""

import hashlib
from dataclasses import replace

import numpy as np

from dance_flwr.config.plugins import METHODS
from dance_flwr.llm.config import LlmConfig
from dance_flwr.llm.model import Stub
from dance_flwr.llm.session import Session
from dance_flwr.llm.template import Message, Template
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import MethodCard, MethodSpec
from dance_flwr.methods.whole_graph import FedAvgFull

QUESTIONS = 3
TEMPLATE = Template(
    name="toy",
    version=1,
    schema={"type": "object", "required": ["score"], "properties": {"score": {"type": "integer"}}},
    limit=8,
    render=lambda facts: [Message("user", f"How often is node {facts['node']} cited?")],
    stub=lambda facts, embed: {"score": facts["node"]},
)


def embed(texts):
    """Unit vectors that depend on the texts alone."""
    seeds = [int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) for text in texts]
    rows = np.stack([np.random.default_rng(seed).normal(size=4) for seed in seeds])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class Asking(FedAvgFull):
    """FedAvg's training, after the questions."""

    def train(self, model, data, config, info):
        """Ask, and train."""
        settings = LlmConfig.of(config)
        with Session(Stub(embed), data.folder, info.run, settings) as session:
            for node in range(QUESTIONS):
                session.ask(TEMPLATE.fill(node=node))
        return super().train(model, data, config, info)

    def planned_calls(self, data, config):
        """Return the questions, with 20 tokens each."""
        return QUESTIONS, 20 * QUESTIONS


SPEC = MethodSpec(
    client=Asking,
    card=MethodCard(
        condenses=False,
        trains_on="every labelled training node",
        leaves_client="model parameters; counts, seconds",
        source="a test",
        needs_llm=True,
    ),
    sections=(LlmConfig,),
)


def register(monkeypatch, name="llm4rgnn", spec=SPEC):
    """Let `name` be this method, and DANCE know the keys of the language model."""
    monkeypatch.delitem(METHODS._external, name, raising=False)
    monkeypatch.setitem(METHODS.builtin, name, spec)
    dance = get_spec("dance")
    if LlmConfig not in dance.sections:
        known = replace(dance, sections=(*dance.sections, LlmConfig))
        monkeypatch.setitem(METHODS.builtin, "dance", known)
