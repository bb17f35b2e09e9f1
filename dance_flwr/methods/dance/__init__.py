"""DANCE, the paper's method; the algorithm itself is in `dance_flwr.dance`.

Uplink: omega = (theta, phi), of which the server needs the weighted mean only.
"""

from dance_flwr.config.sections import LABELS, PROBE
from dance_flwr.dance.config import DanceConfig
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink

METHOD = MethodSpec(
    client="dance_flwr.methods.dance.client:Dance",
    uplink=Uplink.SUM,
    card=MethodCard(
        condenses=True,
        trains_on="labelled nodes of the condensed core; plain term: "
        "and of its selected neighbours; reads all nodes at a refresh of the core",
        leaves_client="model parameters, counts, seconds",
        source="the paper's method",
    ),
    sections=(DanceConfig, LlmConfig),
    # Why (decision 20): the run's record fixes the packs at its end by their hash.
    keeps_evidence=True,
    # Why (decision 18): on clean graphs agreement can cost accuracy, so that a probe decides at
    # each client.
    reading={"text_pooling": PROBE, "edge_gates": PROBE, "class_prior": LABELS},
    views=("plain", "fused", "core"),
    deployed_views=lambda config: DanceConfig.of(config).views.split("+"),
    search={
        "dance.mix": (0.4, 0.6, 0.8),
        "dance.alpha": (4.0, 8.0, 12.0),
        # Why (decision 17): each of these leaves a graph with every alpha; (4, 10) is a graph
        # without edges.
        "dance.beta": (1.0, 3.0, 5.0),
        "dance.align-weight": (0.0, 0.1, 0.5),
        "dance.chunk-budget": (4, 8, 16),
        "dance.plain-weight": (1.0, 2.0, 4.0),
    },
)
