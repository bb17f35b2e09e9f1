"""What methods that refine or augment each client's graph, and average models, have in common."""

from typing import Any

from dance_flwr.config.options import Section
from dance_flwr.llm.config import LlmConfig
from dance_flwr.methods.contract import MethodCard, MethodSpec, Uplink
from dance_flwr.methods.sampling_config import SamplingConfig


def refining(
    client: str, graph: str, source: str, section: type[Section], leaves: str = "", **changes: Any
) -> MethodSpec:
    """Return the declaration of such a method.

    Parameters
    ----------
    client : name of its client side in `dance_flwr_rivals`
    graph : ends "every labelled training node of the ... "
    section : its keys; those of `llm.*` too where `needs_llm`
    leaves : what leaves a client beside the model
    changes : `needs_llm` of the card; other fields of the declaration
    """
    needs_llm = changes.pop("needs_llm", False)
    return MethodSpec(
        client=f"dance_flwr_rivals.{client}",
        uplink=Uplink.SUM,
        card=MethodCard(
            condenses=False,
            trains_on=f"every labelled training node of the {graph}",
            leaves_client=f"model parameters, {leaves}",
            source=source,
            needs_llm=needs_llm,
        ),
        sections=(section, SamplingConfig, *([LlmConfig] if needs_llm else [])),
        views=("raw",),
        label_reuse=True,
        **changes,
    )
