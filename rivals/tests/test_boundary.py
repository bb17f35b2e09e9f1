"""The privacy boundary of rivals; see `support.boundary`."""

from types import MappingProxyType

import pytest
from support.boundary import DOWN, UP, Boundary, entries, scored
from support.boundary import traced as traced
from support.boundary import watched as watched

from dance_flwr.config.plugins import RIVALS

# One worker: its process under strace, which loads every library, is started once.
pytestmark = pytest.mark.xdist_group("boundary of rivals")

# A condensed graph, uploaded in the first round that a client takes part in.
GRAPH = ("features", "adjacency", "labels")
ONCE = entries(DOWN, "train", config=("needs-initial-upload",))
# fedsage: the layers of a generator, and the batch of nodes that it is tried on.
MAKER = tuple(f"{layer}.{part}" for layer in (0, 2, 5) for part in ("weight", "bias"))
BATCH = ("latents", "counts")


def of_peers(*names):
    return tuple(f"client-{client}/{name}" for client in range(3) for name in names)


ADDED = {
    "self-training": set(),
    "random-core": set(),
    "rotating-core": set(),
    "herding-core": set(),
    "k-center-core": set(),
    "gcond": set(),
    "sfgc": set(),
    "fedgta": entries(UP, "train", statistics=("moments", "confidence")),
    "fedtad": entries(UP, "train", statistics=("reliability",)),
    "fedgvd": entries(UP, "train", statistics=GRAPH)
    | entries(DOWN, "train", server_payload=("logits",))
    | ONCE,
    "fedsage": entries(UP, "query.exchange", exchanged=(*MAKER, *BATCH, *of_peers(*MAKER)))
    | entries(
        DOWN,
        "query.exchange",
        config=("run", "partition-dir", "step"),
        exchanged=(*MAKER, *of_peers(*MAKER, *BATCH)),
    ),
    "fedgm": entries(UP, "train", statistics=("weights", "biases", "counts", *GRAPH))
    | entries(DOWN, "train", server_payload=("weight", "bias"))
    | ONCE,
    "fedc4": entries(UP, "train", statistics=("embeddings", *GRAPH))
    | entries(DOWN, "train", server_payload=GRAPH)
    | ONCE,
    "llm4rgnn": scored("raw"),
    "llm4rgnn-cosine": scored("raw"),
    "llata": scored("raw"),
    "llata-cosine": scored("raw"),
    "llata-propagation": scored("raw"),
    # Predictor and feedback are entries of the model, of which secure aggregation hides each one.
    "llm4fgl": scored("raw"),
    "llm4fgl-recombined": scored("raw"),
}


def test_every_rival_has_a_whitelist():
    assert list(ADDED) == list(RIVALS)


@pytest.mark.parametrize("method", RIVALS, scope="class")
class TestBoundary(Boundary):
    """Of rivals."""

    added = ADDED
    # As many steps of matching as are needed for a condensed graph to be no part of the data.
    options = MappingProxyType({"condense_steps": 10})
