"""The section `llm4rgnn.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class Llm4RgnnConfig(Section):
    """Keys of LLM4RGNN; beta = 1 and K = 0 are FedAvg."""

    name: ClassVar[str] = "llm4rgnn"
    beta: int = option(2, "minimum relevance of a kept edge, 1 to 6 (beta)", ge=1, le=6)
    gamma: float = option(0.95, "probability that an added edge must exceed (gamma)", ge=0, lt=1)
    added_per_node: int = option(3, "maximum number of edges that a node adds (K)", ge=0)
    pairs: int = option(
        300,
        "maximum number of pairs per client that the language model judges; 0 = every pair; "
        "the rest are scored by regression",
        ge=0,
    )
    negatives: int = option(
        800, "least similar pairs per client that are scored beside the edges", ge=0
    )
    predictor_width: int = option(512, "edge predictor: width of the hidden layers", ge=1)
    predictor_dropout: float = option(0.7, "edge predictor: dropout rate", ge=0, lt=1)
    predictor_epochs: int = option(
        100, "edge predictor: maximum number of epochs; 0 = no edge is added", ge=0
    )

    # Constants, not keys: no search and no experiment varies them.
    candidates: int = 20  # nearest nodes by cosine to which a node can be linked
    text_words: int = 64  # words of each text in a prompt
    predictor_layers: int = 4  # edge predictor: number of layers
    # Edge predictor: epochs without a lower loss on held-out pairs before it stops.
    predictor_patience: int = 10
    predictor_batch: int = 1024  # edge predictor: pairs per training step
    predictor_learning_rate: float = 1e-3  # edge predictor: learning rate of Adam
    predictor_weight_decay: float = 5e-5  # edge predictor: weight decay of Adam
