"""The section `llm4fgl.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class Llm4FglConfig(Section):
    """Keys of LLM4FGL and its control; every default is ours."""

    name: ClassVar[str] = "llm4fgl"
    ratio_of_nodes: float = option(
        0.2, "share of a client's nodes that get a generated neighbour; 0 = FedAvg", least=0, most=1
    )
    threshold: float = option(
        0.9, "probability above which a generated node is linked to a node", least=0, most=1
    )
    links: int = option(5, "maximum number of links of a generated node", least=1, most=50)
    predictor_rounds: int = option(
        10, "first rounds, in which the edge predictor is trained with the model", least=1
    )
    predictor_steps: int = option(
        10, "training steps of the edge predictor per client and round", least=1
    )
    predictor_dim: int = option(32, "hidden units of the edge predictor", least=1)
    reflections: int = option(
        2, "times that the poorest generated texts are written anew (R)", least=0
    )
    reflect_every: int = option(20, "rounds between reflections (T0)", least=1)
    rewritten_ratio: float = option(
        0.3, "share of the generated texts that a reflection writes anew", least=0, most=1
    )
    duplicate_cosine: float = option(
        0.95,
        "cosine with the text of its node above which a generated text is dropped",
        least=-1,
        most=1,
    )

    def feedback_rounds(self) -> list[int]:
        """Return the rounds whose uploads hold confidences: the first R multiples of T0 that follow
        the rounds of the predictor; ascending.
        """
        first = self.predictor_rounds // self.reflect_every + 1
        return [self.reflect_every * k for k in range(first, first + self.reflections)]

    def reflections_before(self, round_: int) -> int:
        """Return how many reflections a client has made that trains in round `round_`, from 1."""
        return sum(feedback < round_ for feedback in self.feedback_rounds())
