"""The section `llm4fgl.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class Llm4FglConfig(Section):
    """Keys of LLM4FGL; every default is ours."""

    name: ClassVar[str] = "llm4fgl"
    ratio_of_nodes: float = option(
        0.2, "share of nodes that get a generated neighbour; 0 = FedAvg", ge=0, le=1
    )
    threshold: float = option(
        0.9, "probability above which a generated node is linked to a node", ge=0, le=1
    )
    links: int = option(5, "maximum number of links of a generated node", ge=1, le=50)
    predictor_rounds: int = option(10, "first rounds, which train the edge predictor", ge=1)
    reflections: int = option(
        2, "times that the poorest generated texts are written anew (R)", ge=0
    )
    reflect_every: int = option(20, "rounds between reflections (T0)", ge=1)
    duplicate_cosine: float = option(
        0.95, "cosine with its node's text above which a generated text is dropped", ge=-1, le=1
    )

    # Constants, not keys: no search and no experiment varies them.
    predictor_steps: int = 10  # training steps of the edge predictor per client and round
    predictor_dim: int = 32  # hidden units of the edge predictor
    rewritten_ratio: float = 0.3  # share of the generated texts that a reflection writes anew

    def feedback_rounds(self) -> list[int]:
        """Return the rounds whose uploads hold confidences: the first R multiples of T0 that follow
        the rounds of the predictor; ascending.
        """
        first = self.predictor_rounds // self.reflect_every + 1
        return [self.reflect_every * k for k in range(first, first + self.reflections)]

    def reflections_before(self, round_: int) -> int:
        """Return how many reflections a client has made that trains in round `round_`, from 1."""
        return sum(feedback < round_ for feedback in self.feedback_rounds())
