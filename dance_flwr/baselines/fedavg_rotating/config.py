"""The section `rotating.*`."""

from dataclasses import dataclass
from typing import ClassVar

from dance_flwr.config.options import Section, option


@dataclass(frozen=True)
class RotatingConfig(Section):
    """Keys of fedavg-rotating."""

    name: ClassVar[str] = "rotating"
    supervised_ratio: float = option(
        2.25, "labelled nodes supervised per round, as a multiple of the condensed nodes (K)", gt=0
    )
