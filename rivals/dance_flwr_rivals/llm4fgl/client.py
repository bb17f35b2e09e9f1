"""The client side of LLM4FGL: train the predictor, generate, train on the augmented graph."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, class_probabilities, plain_model
from dance_flwr.methods.whole_graph import FedAvgFull, train_on_graph
from dance_flwr.metrics import Report
from dance_flwr.nn.model import ModelShape, PlainModel
from dance_flwr.seeding import generator, seeded
from dance_flwr_rivals.llm4fgl import Llm4FglConfig, writing
from dance_flwr_rivals.llm4fgl.generation import (
    Generation,
    Place,
    generate,
    load_latest,
    poorest,
    rewrite,
)
from dance_flwr_rivals.llm4fgl.predictor import GeneratingModel, LocalPairs, train_predictor
from dance_flwr_rivals.llm4fgl.writing import Writer
from dance_flwr_rivals.refined_graph import (
    TRAINING,
    WHOLE,
    augmented_operator,
    graphs_of,
    with_generated_nodes,
)


class Llm4Fgl(FedAvgFull):
    """The plain network on each client's graph with neighbours that a language model wrote."""

    writer: Writer = staticmethod(writing.by_model)

    def build(self, shape: ModelShape, config: RunConfig) -> PlainModel:
        """Return the plain network, with predictor and feedback if neighbours are generated."""
        settings = Llm4FglConfig.of(config)
        # The plain network, so that a ratio of 0 is FedAvg with its upload.
        if not settings.ratio_of_nodes:
            return plain_model(shape, config)
        return GeneratingModel(
            shape, config.backbone, config.dropout, config.label_reuse, settings.predictor_dim
        )

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes.

        The first rounds train on the raw graph, and the predictor beside the network; later rounds
        train on the augmented graph, whose generated nodes have no label. In a feedback round, the
        upload holds the confidences of the received model in these nodes. The next time a client
        takes part, it rewrites its poorest texts by the mean that was returned.
        """
        if not isinstance(model, GeneratingModel):
            return super().train(model, data, config, info)
        # No text is written before the predictor that links it is trained.
        if info.round <= Llm4FglConfig.of(config).predictor_rounds:
            report = super().train(model, data, config, info)
            with report.phase("topology"):
                pairs = LocalPairs(data.training_graph, config.seed, data.card.client)
                draw = generator(
                    config.seed, "non-edges", round_=info.round, client=data.card.client
                )
                unit = F.normalize(data.features, dim=1)
                steps = Llm4FglConfig.of(config).predictor_steps
                train_predictor(model.predictor, unit, pairs, steps, draw)
            return report
        report = Report()
        with report.phase("text"):
            generation = self._generation(model, data, config, info, reflects=True)
        with report.phase("topology"):
            name = TRAINING if data.inductive else WHOLE
            graph = augmented_graph(model, data, generation, name)
            if info.round in Llm4FglConfig.of(config).feedback_rounds():
                feedback = feedback_of(*_confidence(model, data, graph), model.feedback.size(1))
                with torch.no_grad():
                    # By n_k, which the weighted mean multiplies by again: the mean over clients is
                    # that of all nodes.
                    model.feedback.copy_(feedback / data.num_nodes)
        with report.phase("train"):
            report.loss = train_on_graph(model, graph, config, info.round)
        return report

    def predict(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo, nodes: Tensor
    ) -> dict[str, Tensor]:
        """Predict nodes on the augmented graph ("deployed") and on the raw one ("raw").

        Both are equal before any neighbour is generated. In inductive mode the neighbours that were
        generated from the training graph are linked to the nodes of the whole one.
        """
        raw = super().predict(model, data, config, info, nodes)["deployed"]
        settings = Llm4FglConfig.of(config)
        if not isinstance(model, GeneratingModel) or info.round <= settings.predictor_rounds:
            return {"deployed": raw, "raw": raw}
        generation = self._generation(model, data, config, info, reflects=False)
        graph = augmented_graph(model, data, generation, WHOLE)
        return {"deployed": class_probabilities(model, graph)[nodes], "raw": raw}

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return the maximum number of calls and tokens of a run at this client."""
        return writing.planned_calls(data, config)

    def _generation(
        self,
        model: GeneratingModel,
        data: ClientData,
        config: RunConfig,
        info: RoundInfo,
        *,
        reflects: bool,
    ) -> Generation:
        """Return the version of this round, generated now if it is missing or was lost.

        A client that was absent from reflections makes up for the last one only.
        """
        settings, at = Llm4FglConfig.of(config), Place(data, config, info.run, self.writer)
        # The version follows from the round, so that a client that was away knows what it missed.
        due = settings.reflections_before(info.round)
        generation = load_latest(data, info.run, due)
        # Loading an encoder may draw numbers: training draws the same ones without it.
        with seeded(config.seed, "llm4fgl", client=data.card.client):
            if generation is None:
                generation = generate(model.predictor, at)
            # Training alone writes anew: whether a round is validated changes no text.
            if reflects and generation.version < due and bool((model.feedback[1] > 0).any()):
                graph = augmented_graph(
                    model, data, generation, TRAINING if data.inductive else WHOLE
                )
                # -1 is below every quality: duplicates are written anew first.
                quality = torch.full_like(generation.used, -1, dtype=torch.float32)
                quality[generation.used] = quality_of(
                    *_confidence(model, data, graph), model.feedback.detach()
                )
                poor = poorest(quality, generation.texts, settings.rewritten_ratio)
                generation = rewrite(model.predictor, at, generation, poor, due)
        return generation


class Llm4FglRecombined(Llm4Fgl):
    """The control: neighbours are recombined from the client's sentences without a model."""

    writer: Writer = staticmethod(writing.by_recombination)

    def planned_calls(self, data: ClientData, config: RunConfig) -> tuple[int, int]:
        """Return no calls and no tokens."""
        return 0, 0


def feedback_of(confidence: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """[sum_{i in c} max_c p_i, |{i in c}|] over generated nodes i predicted as c; [2, C].

    Parameters
    ----------
    confidence : [g]; predicted : [g] int64
    """
    rows = torch.stack([confidence, torch.ones_like(confidence)])
    return rows.new_zeros(2, classes).index_add_(1, predicted, rows)


def quality_of(confidence: Tensor, predicted: Tensor, feedback: Tensor) -> Tensor:
    """q_i = p_i - mu_c(i), mu the mean confidence of all clients in the class; [g].

    mu_c is 0 where no client has a generated node of class c; whatever a server sends, mu is in
    [0, 1].

    Parameters
    ----------
    confidence, predicted : as in `feedback_of`
    feedback : [2, C], sums and counts in one unit
    """
    # Whatever a server sends, a mean confidence is between 0 and 1.
    sums, counts = torch.nan_to_num(feedback, nan=0.0, posinf=0.0, neginf=0.0)
    mean = torch.where(counts > 0, sums / counts.clamp(min=torch.finfo(counts.dtype).tiny), 0.0)
    return confidence - mean.clamp(0, 1)[predicted]


def augmented_graph(
    model: PlainModel, data: ClientData, generation: Generation, name: str
) -> LabelledGraph:
    """Return a graph of `graphs_of` with the generated nodes that are used, computed once."""
    kind = model.backbone.operator

    def augment() -> LabelledGraph:
        features, links = generation.features[generation.used], generation.links[name]
        graph, sizes = graphs_of(data)[name], (data.num_nodes, len(features))
        operator = augmented_operator(kind, *graph.edges(), links, sizes, graph.gates)
        return with_generated_nodes(model, data, features, operator)

    return data.cached(f"llm4fgl {name}", (generation, kind), augment)


def _confidence(model: PlainModel, data: ClientData, graph: LabelledGraph) -> tuple[Tensor, Tensor]:
    confidence, predicted = class_probabilities(model, graph)[data.num_nodes :].max(dim=1)
    return confidence, predicted
