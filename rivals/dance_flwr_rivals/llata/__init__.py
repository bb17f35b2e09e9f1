"""LLaTA: edges re-sampled from a community tree with soft labels of a language model, then FedAvg.

A re-implementation from description. "LLaTA" is graph structure learning without training, a
preprint of 2025, withdrawn from ICLR 2026 after reviews; no public code was found.

Known from the paper and its reviews: a structural-entropy tree of height K by greedy merges, as in
SE-GSL (Zou et al., "SE-GSL: A General and Effective Graph Structure Learning Framework through
Structural Entropy Optimization", WWW 2023); a language model that sees a node with its community
and gives soft labels; leaves that move to the community whose mean soft label is closest; two-step
sampling, a branch by entropy and leaves by cosine of soft labels; any graph network on the result.

Ours, since the descriptions do not say: K = 2 and every other number; merges that run in parallel
where they do not touch, moves between them, and the exact minimum on components of at most six
nodes; the prompt, its 200 tokens of a target and 80 of each of five members; delta, rho, and that a
node that moves is compared with its community without itself; tau, that edges between communities
with the least cosine are dropped, and that no more than half as many edges as there are can be
added; FedAvg, each client refining its own graph once, before its first round. Nodes that a
language model gives no label (a cap, an unusable reply) have propagated ones.

The reviewers suspected that what helps is the label bias of the language model, which raises
homophily. Two controls spend no token and differ in the soft labels alone: `llata-cosine`, the
softmax of the cosine of a text with the names of the classes under the frozen encoder, and
`llata-propagation`, label propagation of the training labels. No soft label reads the label of its
own node.

Soft labels, tree and edges read training labels only; in inductive mode test nodes are absent from
them, and keep their edges as they are when they are predicted. The view "raw" is the same model on
the graph as it is. A search over the keys of `search` changes no prompt, so that it asks nothing
again.

Uplink: the model, of which the server needs the weighted mean only.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.methods.contract import MethodSpec
from dance_flwr_rivals.refining import refining


@dataclass(frozen=True)
class LlataConfig(Section):
    """Keys of LLaTA; every default is ours."""

    name: ClassVar[str] = "llata"
    # Every default is ours, since the descriptions name no number.
    moved_ratio_of_nodes: float = option(
        0.1, "maximum share of nodes that move to another community (rho)", ge=0, le=1
    )
    move_threshold: float = option(
        0.05, "minimum gain in cosine with the mean soft label of the community (delta)", ge=0
    )
    added_ratio_of_edges: float = option(
        0.5, "sampled edges, as a share of those of the graph", ge=0, le=0.5
    )
    dropped_ratio_of_edges: float = option(
        0.1, "dropped edges between communities, least similar first, as a share of all", ge=0, le=1
    )
    temperature: float = option(
        0.1, "temperature of that cosine where the second end is drawn (tau)", gt=0
    )

    # Constants, not keys: no search and no experiment varies them.
    # Llata-cosine: temperature of the cosine of a text with the names of classes.
    label_temperature: float = 0.05
    # Both bound the length of a prompt; five targets per call halve the tokens of one per call.
    targets: int = 5  # llata: most nodes of one community that a call asks for
    members: int = 5  # llata: other members of the community that a call shows


def _spec(client: str, labels: str, source: str, **changes: Any) -> MethodSpec:
    return refining(
        f"llata.client:{client}",
        f"local graph, its edges re-sampled by communities and {labels}",
        source,
        LlataConfig,
        search={
            "llata.added-ratio-of-edges": (0.1, 0.25, 0.5),
            "llata.dropped-ratio-of-edges": (0.0, 0.1, 0.2),
            "llata.moved-ratio-of-nodes": (0.0, 0.1, 0.2),
            "llata.temperature": (0.05, 0.1, 0.5),
        },
        **{"leaves": "counts, seconds"} | changes,
    )


METHOD = _spec(
    "Llata",
    "soft labels of a language model",
    "LLaTA, preprint 2025; re-implementation from description",
    leaves="counts, seconds; texts, to the language model that the client chose",
    needs_llm=True,
)
COSINE = _spec("LlataCosine", "cosines of texts and names of classes", "a control of llata")
PROPAGATION = _spec("LlataPropagation", "propagated training labels", "a control of llata")
