"""LLM4RGNN: a language model judges edges, a predictor adds missing ones, then FedAvg.

Zhang, Wang, Zhou, Yu, Zhang, Yang and Shi, "Can Large Language Models Improve the Adversarial
Robustness of Graph Neural Networks?", KDD 2025. Each client refines its graph once:

1. every undirected edge gets a relevance of 1 (no relation) to 6 (direct relation);
2. edges of relevance >= beta are kept;
3. an edge predictor learns, from text embeddings, pairs of relevance >= 5 (positive) against pairs
   of relevance <= 4, topped up from the least similar pairs, which are judged too;
4. each node is linked to at most K candidates whose predicted probability exceeds gamma;
5. the plain network is trained on the refined graph by FedAvg, and predicts on it; the view "raw"
   is the same model on the graph as it was.

The method is made for attacked graphs; on a clean one it is plain refinement. With beta = 1 and
K = 0 it is `fedavg-full`, bit by bit. `llm4rgnn-cosine` is its control without a language model:
the relevance is the cosine's quantile among random pairs (`dance_flwr_rivals.llm4rgnn.scoring`),
all else is equal.

Known from the paper and its public code: the scale, the thresholds 5 and 4, the predictor (4
layers, 512 units, dropout 0.7, BCE, Adam 1e-3, weight decay 5e-5, batch 1024, early stopping), the
grids of beta, gamma and K, the reply as JSON with an analysis and a score. The public code misses
scores in quotation marks and counts what it cannot read as 1 on edges, which deletes them.

Ours, since neither says how the method is federated or keeps within a budget:

- each client refines its own graph; nothing of it leaves the client;
- any model of `llm.backend` answers, where the paper distils GPT-4 into a 7B model; it is asked for
  the score only, about texts cut to 64 words;
- at most `llm4rgnn.pairs` pairs per client are judged, the same ones in runs of every seed; ridge
  regression on the embeddings scores the rest (`dance_flwr_rivals.llm4rgnn.scoring`);
- an edge whose reply cannot be read is kept and counted, and the predictor does not learn from it;
- the predictor's input is symmetric, (a * b, |a - b|), so that both ends agree; it trains for at
  most 100 epochs, with a patience of 10; candidates are the nearest nodes by cosine, found in
  blocks, where the public code holds n x n matrices; edges that were dropped are not added again;
- in inductive mode model, regression and predictor see the training graph alone; edges of test
  nodes are scored by the regression.

Uplink: the model, of which the server needs the weighted mean only.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr_rivals.refining import refining


@dataclass(frozen=True)
class Llm4RgnnConfig(Section):
    """Keys of LLM4RGNN; beta = 1 and K = 0 are FedAvg."""

    name: ClassVar[str] = "llm4rgnn"
    beta: int = option(2, "minimum relevance of a kept edge, 1 to 6 (beta)", ge=1, le=6)
    gamma: float = option(0.95, "probability that an added edge must exceed (gamma)", ge=0, lt=1)
    added_per_node: int = option(3, "maximum number of edges that a node adds (K)", ge=0)
    # 1500 calls for 5 clients on Cora, where every edge and 4000 negatives would be 8728.
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
    # The public code holds n x n matrices; the nearest nodes need a block at a time.
    candidates: int = 20  # nearest nodes by cosine to which a node can be linked
    text_words: int = 64  # words of each text in a prompt
    # The predictor of the public code, which stops later: 1000 epochs at most, a patience of 100.
    predictor_layers: int = 4  # edge predictor: number of layers
    # Edge predictor: epochs without a lower loss on held-out pairs before it stops.
    predictor_patience: int = 10
    predictor_batch: int = 1024  # edge predictor: pairs per training step
    predictor_learning_rate: float = 1e-3  # edge predictor: learning rate of Adam
    predictor_weight_decay: float = 5e-5  # edge predictor: weight decay of Adam


_refining = partial(
    refining,
    graph="full local graph, after its edges were refined",
    section=Llm4RgnnConfig,
    search={
        "llm4rgnn.beta": (1, 2, 3, 4),
        "llm4rgnn.gamma": (0.91, 0.93, 0.95, 0.97, 0.99),
        "llm4rgnn.added-per-node": (1, 3, 5, 7, 9),
    },
)
METHOD = _refining(
    "llm4rgnn.client:Llm4Rgnn",
    source="Zhang et al. 2025",
    leaves="counts, seconds; texts, to the endpoint that the client chose, if it chose one",
    needs_llm=True,
)
COSINE = _refining(
    "llm4rgnn.client:Llm4RgnnCosine",
    source="control of Zhang et al. 2025",
    leaves="counts, seconds",
)
