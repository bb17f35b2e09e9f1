"""The section `sampling.*`: batches of labelled nodes with sampled neighbours."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option
from dance_flwr.config.plugins import BACKBONES
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError

# A target with fan-out B has up to B^reach nodes around it: further, a batch is the whole graph.
# Why (decision 15): ten layers of samples, as APPNP would need, are the whole graph.
MAX_REACH = 3


@dataclass(frozen=True)
class SamplingConfig(Section):
    """Keys of batches with sampled neighbours."""

    name: ClassVar[str] = "sampling"
    # Why (decision 15): off by default, as a batch is cheaper per epoch but sees fewer labels.
    batch_nodes: int = option(
        0, "labelled nodes per local epoch, with sampled neighbours; 0 = the whole graph", ge=0
    )
    fan_out: int = option(10, "neighbours per node and layer that a batch samples; 0 = all", ge=0)


def check_reach(config: RunConfig) -> None:
    """Refuse batches of a backbone that reaches too far to sample.

    Raises
    ------
    UserError : `sampling.batch-nodes` is set, and the backbone reaches beyond `MAX_REACH` hops
    """
    if not SamplingConfig.of(config).batch_nodes:
        return
    reach = BACKBONES.get(config.backbone).reach
    # Why (decision 15): refused and not cut: a smaller reach would train another network than the
    # one that predicts.
    if reach > MAX_REACH:
        raise UserError(
            f"sampling.batch-nodes: expected a backbone that reaches at most {MAX_REACH} hops, "
            f"found {config.backbone!r}, which reaches {reach}; set sampling.batch-nodes = 0, or "
            "choose another backbone"
        )
