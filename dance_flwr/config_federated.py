"""The sections of baselines that condense at the clients and go on with the condensed graphs at the server."""

from dataclasses import dataclass

from dance_flwr.config_sections import option


@dataclass(frozen=True)
class FedGmConfig:
    """Keys of `fedgm`, `fedgm.*`; how clients condense is `condense.*`."""

    feature_rate: float = option(0.01, "Adam learning rate of the condensed features at the server", above=0)
    train_every: int = option(10, "rounds between trainings of the deployed network at the server", least=1)
    train_steps: int = option(50, "steps of such a training, from a new start", least=1)
