"""The sections of baselines that have keys of their own."""

from dataclasses import dataclass

from dance_flwr.config_sections import option


@dataclass(frozen=True)
class FedGtaConfig:
    """Keys of `fedgta`, `fedgta.*`; the values are those of its public code for every data set alike."""

    moments: int = option(10, "highest order of the moments of the soft labels (P)", least=1, most=50)
    kind: str = option(
        "hybrid", "moments that are compared; hybrid = raw and central", choices=("raw", "central", "hybrid")
    )
    epsilon: float = option(0.5, "clients whose moments have a cosine above this are averaged", least=-1, most=1)
    steps: int = option(5, "steps of label propagation", least=0)
    alpha: float = option(0.5, "share of the neighbours in a step of label propagation", least=0, most=1)
    temperature: float = option(20.0, "temperature of the soft labels that confidence is taken of", above=0)


@dataclass(frozen=True)
class FedTadConfig:
    """Keys of `fedtad`, `fedtad.*`; the values are those of its public code for every data set alike."""

    reliability: str = option(
        "topology",
        "class-wise reliability of a client; count = labelled nodes, what the public code's comes down to",
        choices=("topology", "count"),
    )
    steps: int = option(5, "outer steps of distillation per round; 0 = FedAvg", least=0)
    generator_steps: int = option(1, "generator updates per outer step", least=0)
    model_steps: int = option(5, "updates of the global model per outer step", least=0)
    nodes: int = option(100, "nodes of the pseudo-graph (N)", least=1)
    noise_dim: int = option(32, "width of the generator's noise", least=1)
    neighbours: int = option(5, "nearest pseudo-nodes that are linked, the node itself among them", least=1)
    learning_rate: float = option(1e-3, "Adam learning rate of generator and global model", above=0)
    label_weight: float = option(
        1.0, "weight of the clients' cross-entropy in the generator's loss (lambda_1)", least=0
    )
    diversity_weight: float = option(1.0, "weight of diversity in the generator's loss (lambda_2)", least=0)
