"""The client side of LLM4RGNN and of its control."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import Site
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.label_reuse import input_labels
from dance_flwr.methods.llm4rgnn import RAW, judging
from dance_flwr.methods.llm4rgnn.refining import RefinedGraphs, refined_graphs
from dance_flwr.methods.llm4rgnn.scoring import Scorer, by_cosine, by_language_model
from dance_flwr.methods.plain_method import PlainMethod, class_probabilities
from dance_flwr.methods.whole_graph import train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel


class Llm4Rgnn(PlainMethod):
    """The plain network on the graph that a language model and a predictor refined."""

    scorer: Scorer = staticmethod(by_language_model)

    def scorer_settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return what the scores depend on, beside the section `llm4rgnn`."""
        return {"scorer": "language model", "llm": asdict(LlmConfig.of(config))}

    def planned_calls(self, site: Site, config: RunConfig) -> tuple[int, int]:
        """Return (calls, tokens) that a run of this client makes at most."""
        return judging.planned_calls(site, config)

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the refined graph.

        The first round also refines it.
        """
        report = Report()
        with report.phase("topology"):
            graph = self._graphs(site, config, info).training
        operator = graph.operator(model.backbone.operator)
        with report.phase("train"):
            report.loss = train_on_graph(
                model,
                site.features,
                operator,
                site.train_labels,
                config,
                info.round,
                site.card.client,
            )
        return report

    def predict(
        self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes by one pass over the refined graph, and one over the graph as it was."""
        shown, kind = input_labels(model, site.train_labels), model.backbone.operator
        graphs = {"deployed": self._graphs(site, config, info).whole, RAW: site.graph}
        return {
            view: class_probabilities(model, site.features, graph.operator(kind), shown)[nodes]
            for view, graph in graphs.items()
        }

    def _graphs(self, site: Site, config: RunConfig, info: RoundInfo) -> RefinedGraphs:
        settings = self.scorer_settings(config)
        return refined_graphs(site, config, info.run, self.scorer, settings)


class Llm4RgnnCosine(Llm4Rgnn):
    """The same with the cosine as the score: no language model, no token."""

    scorer: Scorer = staticmethod(by_cosine)

    def scorer_settings(self, config: RunConfig) -> Mapping[str, Any]:
        """Return nothing but the name: the mapping has no keys."""
        return {"scorer": "cosine"}

    def planned_calls(self, site: Site, config: RunConfig) -> tuple[int, int]:
        """Return no calls and no tokens."""
        return 0, 0
