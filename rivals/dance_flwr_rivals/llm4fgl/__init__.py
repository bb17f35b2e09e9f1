"""LLM4FGL: neighbours that a language model writes repair each client's graph, then FedAvg.

LLM4FGL, preprint arXiv 2503.19455, March 2025. From its abstract: a client lets a language model
generate missing neighbours as text (a); a generation-and-reflection loop improves them by feedback
of all clients, without tuning the model (b); an edge predictor that the clients train together
links them to raw nodes (c); any federated graph learning runs on top (d). No public code was
found, and neither its prompts, its language model, its threshold, the number of neighbours nor its
tables are known to us. Every number, prompt and threshold here is ours, and so are:

- nodes that get a neighbour: the 20 % of fewest neighbours (`llm4fgl.ratio-of-nodes`), one each;
- prompt: the node's text and the texts of up to three neighbours; title and abstract of at most
  120 words, by a JSON schema; no label and no name of a class;
- a text whose cosine with its node's text is above 0.95 is dropped; others are linked to the at
  most 5 of their 32 nearest nodes with p > 0.9, the node itself among them only if p says so;
- the predictor, a network of one hidden layer on two texts, is a part of the model: it is trained
  beside it on the raw graph in the first 10 rounds, on 90 % of the local edges and as many random
  non-edges, and averaged with it. No exchange before round 1 shows the server a single client's
  predictor, and secure aggregation and differential privacy cover it;
- reflection: in rounds 20 and 40 clients upload, as 2 C more entries of the model, the sum of the
  model's confidences in generated nodes and their number, per predicted class and node of the
  client. Their mean comes back with the model, and the 30 % of texts that are furthest below the
  mean of their class, duplicates first, are written anew once per reflection. A client that was
  away makes up for the last reflection. The mean is exact where a client's weight is its nodes and
  the server's step is FedAvg's; steps that rescale entries, as FedAdam's, or read single uploads
  blur it, down to a comparison by confidence alone;
- the loss is on raw training nodes; generated nodes have no label, are in no mask and are never
  scored. Predictions are made on the augmented graph, with the raw graph as second view. In
  inductive mode texts come from the training graph; for evaluation the same ones are linked anew,
  to the nodes of the whole graph.

A call without a usable reply, or beyond the caps, leaves its node without a neighbour, or keeps the
draft. `llm4fgl-recombined` is the control without a language model: sentences of the four nearest
other texts of the client, recombined at random; a reflection recombines anew.

Uplink: the model, predictor and 2 C numbers included, of which the server needs the weighted mean
only. Generated texts stay in the client's folder of the run.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr_rivals.refining import refining


@dataclass(frozen=True)
class Llm4FglConfig(Section):
    """Keys of LLM4FGL; every default is ours."""

    name: ClassVar[str] = "llm4fgl"
    # Every default is ours: only the abstract is known.
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
        # Not before the first neighbours exist.
        first = self.predictor_rounds // self.reflect_every + 1
        return [self.reflect_every * k for k in range(first, first + self.reflections)]

    def reflections_before(self, round_: int) -> int:
        """Return how many reflections a client has made that trains in round `round_`, from 1."""
        return sum(feedback < round_ for feedback in self.feedback_rounds())


_LEAVES = (
    "among them an edge predictor and, in rounds of feedback, sums of confidences in generated "
    "nodes per predicted class; counts, seconds"
)
_refining = partial(
    refining,
    source="LLM4FGL, arXiv 2503.19455, from its description",
    section=Llm4FglConfig,
    search={
        "llm4fgl.ratio-of-nodes": (0.1, 0.2, 0.5),
        "llm4fgl.threshold": (0.8, 0.9, 0.95),
        "llm4fgl.links": (1, 3, 5),
    },
)
METHOD = _refining(
    "llm4fgl.client:Llm4Fgl",
    "full local graph, augmented with neighbours that a language model wrote",
    leaves=f"{_LEAVES}; texts, to the endpoint that the client chose, if any",
    needs_llm=True,
)
RECOMBINED = _refining(
    "llm4fgl.client:Llm4FglRecombined",
    "full local graph, augmented with neighbours of recombined sentences of the client's own",
    leaves=_LEAVES,
)
