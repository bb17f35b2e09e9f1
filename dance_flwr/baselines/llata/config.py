"""The section `llata.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class LlataConfig(Section):
    """Keys of LLaTA and its two controls; every default is ours."""

    name: ClassVar[str] = "llata"
    height: int = option(2, "height of the community tree, leaves included (K)", least=2, most=4)
    moved_ratio_of_nodes: float = option(
        0.1, "most nodes that move to another community, as a share of all (rho)", least=0, most=1
    )
    move_threshold: float = option(
        0.05,
        "least gain in cosine between a node's soft label and the mean of its community that "
        "moves it (delta)",
        least=0,
    )
    added_ratio_of_edges: float = option(
        0.5, "edges that are sampled, as a share of those of the graph", least=0, most=0.5
    )
    dropped_ratio_of_edges: float = option(
        0.1,
        "edges between communities that are dropped, as a share of all; those with the least "
        "cosine of soft labels",
        least=0,
        most=1,
    )
    temperature: float = option(
        0.1, "temperature of that cosine where the second end is drawn (tau)", above=0
    )
    label_temperature: float = option(
        0.05, "llata-cosine: temperature of the cosine of a text with the names of classes", above=0
    )
    targets: int = option(
        5, "llata: most nodes of one community that a call asks for", least=1, most=10
    )
    members: int = option(
        5, "llata: other members of the community that a call shows", least=0, most=8
    )
