"""FedAvg on K real training nodes per client and the edges among them: coreset baselines.

Each client selects its core once, K_c nodes of every class that its training nodes have
(`dance_flwr_rivals.condensation.client`), at random, by herding (Welling 2009) or by k-center
(Sener and Savarese 2018), and trains the plain network on the induced subgraph. `rotating-core`
draws a random core of the same quotas anew in every round, so that a run sees the training nodes in
turn while no round trains on more than K.

Uplink: the model, of which the server needs the weighted mean only.

Deviations: herding and k-center measure distances in P^2 X, P = D^-1/2 (A + I) D^-1/2 and X the
text embeddings t_u, and are deterministic. The public condensation code measures in the hidden
space of a trained network; P^2 X is the input of its matching network and needs no training.
"""

from dance_flwr.methods.contract import MethodCard, MethodSpec


def _spec(client: str, how: str, source: str) -> MethodSpec:
    return MethodSpec(
        client=f"dance_flwr_rivals.selected_core.client:{client}",
        card=MethodCard(
            condenses=True,
            trains_on=f"labelled training nodes chosen {how}, on their induced subgraph",
            leaves_client="model parameters, counts, seconds",
            source=source,
        ),
    )


RANDOM = _spec("RandomCore", "once at random", "the usual lower bound of graph condensation")
ROTATING = _spec("RotatingCore", "anew at random in each round", "a control of core selection")
HERDING = _spec("HerdingCore", "once by herding", "Welling 2009")
K_CENTER = _spec("KCenterCore", "once by k-center", "Sener and Savarese 2018")
