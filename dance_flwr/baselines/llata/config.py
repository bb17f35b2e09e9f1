"""The section `llata.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class LlataConfig(Section):
    """Keys of LLaTA; every default is ours."""

    name: ClassVar[str] = "llata"
    height: int = option(2, "height of the community tree, leaves included (K)", ge=2, le=4)
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
    targets: int = 5  # llata: most nodes of one community that a call asks for
    members: int = 5  # llata: other members of the community that a call shows
