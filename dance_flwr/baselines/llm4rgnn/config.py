"""The section `llm4rgnn.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class Llm4RgnnConfig(Section):
    """Keys of LLM4RGNN and of its control; beta = 1 and K = 0 are FedAvg."""

    name: ClassVar[str] = "llm4rgnn"
    beta: int = option(
        2, "minimum relevance, 1 to 6, of an edge that is kept (beta)", least=1, most=6
    )
    gamma: float = option(
        0.95, "probability that an added edge must exceed (gamma)", least=0, below=1
    )
    added_per_node: int = option(
        3, "maximum number of edges that each node adds (K); 0 = none", least=0
    )
    candidates: int = option(
        20, "nearest nodes by cosine to which a node can be linked", least=1, most=1000
    )
    pairs: int = option(
        300,
        "maximum number of pairs per client that the language model judges, the rest are scored by "
        "regression; 0 = every pair, within llm.max-calls and llm.max-tokens",
        least=0,
    )
    negatives: int = option(
        800, "least similar pairs per client that are scored beside the edges", least=0
    )
    text_words: int = option(64, "words of each text in a prompt", least=1)
    predictor_layers: int = option(4, "edge predictor: number of layers", least=1, most=16)
    predictor_width: int = option(512, "edge predictor: width of the hidden layers", least=1)
    predictor_dropout: float = option(0.7, "edge predictor: dropout rate", least=0, below=1)
    predictor_epochs: int = option(
        100, "edge predictor: maximum number of epochs; 0 = no predictor, no edge is added", least=0
    )
    predictor_patience: int = option(
        10, "edge predictor: epochs without a lower loss on held-out pairs before it stops", least=1
    )
    predictor_batch: int = option(1024, "edge predictor: pairs per training step", least=1)
    predictor_learning_rate: float = option(1e-3, "edge predictor: learning rate of Adam", above=0)
    predictor_weight_decay: float = option(5e-5, "edge predictor: weight decay of Adam", least=0)
