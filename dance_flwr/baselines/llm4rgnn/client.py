"""The client side of LLM4RGNN and of its control."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dance_flwr.baselines.llm4rgnn import judging
from dance_flwr.baselines.llm4rgnn.refining import refined_graphs
from dance_flwr.baselines.llm4rgnn.scoring import Scorer, by_cosine, by_language_model
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.client_data.local_graph import LocalGraph
from dance_flwr.config.tree import RunConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.refined_graph import RefinedGraph


class Llm4Rgnn(RefinedGraph):
    """The plain network on the graph that a language model and a predictor refined."""

    scorer: Scorer = staticmethod(by_language_model)

    def scorer_settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return what the scores depend on, beside the section `llm4rgnn`."""
        return {"scorer": "language model", "llm": asdict(LlmConfig.of(config))}

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return (calls, tokens) that a run of this client makes at most."""
        return judging.planned_calls(data, config)

    def graphs(
        self, data: ClientData, config: RunConfig, run: str
    ) -> tuple[LocalGraph, LocalGraph]:
        """Return the graphs that scorer and predictor refined, see `refined_graphs`."""
        settings = self.scorer_settings(config)
        refined = refined_graphs(data, config, run, self.scorer, settings)
        return refined.training, refined.whole


class Llm4RgnnCosine(Llm4Rgnn):
    """The same with the cosine as the score: no language model, no token."""

    scorer: Scorer = staticmethod(by_cosine)

    def scorer_settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return nothing but the name: the mapping has no keys."""
        return {"scorer": "cosine"}

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return no calls and no tokens."""
        return 0, 0
