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


@dataclass(frozen=True)
class FedGvdConfig:
    """Keys of `fedgvd`, `fedgvd.*`; the budget is `dance.ratio`, as everywhere."""

    teacher_width: int = option(256, "hidden width of the linear network that a client condenses by", least=1)
    teacher_steps: int = option(200, "training steps of that network", least=1)
    steps: int = option(500, "condensation steps", least=1)
    feature_rate: float = option(5e-3, "Adam learning rate of the condensed features", above=0)
    adjacency_rate: float = option(1e-3, "Adam learning rate of the network that makes the adjacency", above=0)
    align_weight: float = option(10.0, "weight of the distance of class means and deviations", least=0)
    smooth_weight: float = option(0.1, "weight of the distance of linked condensed nodes", least=0)
    server_epochs: int = option(10, "training steps of the server's network per round", least=0)
    server_rate: float = option(0.01, "Adam learning rate of the server's network", above=0)
    condensed_weight: float = option(1.0, "weight of a client's own condensed nodes in its loss (gamma)", least=0)
    teaching_weight: float = option(
        1e-4, "weight of the squared distance of a client's logits from the server's (lambda)", least=0
    )


@dataclass(frozen=True)
class FedSageConfig:
    """Keys of `fedsage`, `fedsage.*`; the values are those of its public code where it gives one."""

    most: int = option(5, "generated neighbours of a node at most (P); 0 = FedAvg", least=0, most=20)
    hidden_share: float = option(
        0.5, "share of the validation nodes that are hidden while the generator learns", least=0, most=1
    )
    steps: int = option(20, "steps of the generator at each client alone", least=0)
    exchanges: int = option(10, "steps of the generator with gradients of other clients; 0 = none", least=0)
    peers: int = option(2, "other clients that a generator is sent to in an exchange, in turn; 0 = all", least=0)
    batch: int = option(32, "nodes that the generator makes neighbours of in a step", least=1)
    learning_rate: float = option(1e-3, "Adam learning rate of the generator", above=0)
    weight_decay: float = option(1e-4, "Adam weight decay of the generator", least=0)
    latent_dim: int = option(128, "width of the latents of nodes", least=1)
    maker_dim: int = option(512, "width of the last hidden layer of the feature generator", least=1)
    count_weight: float = option(1.0, "weight of the number of missing neighbours in the loss (a)", least=0)
    feature_weight: float = option(1.0, "weight of their features in the loss (b)", least=0)
    class_weight: float = option(1.0, "weight of the cross-entropy on the mended graph in the loss (c)", least=0)


@dataclass(frozen=True)
class FedGmConfig:
    """Keys of `fedgm`, `fedgm.*`; how clients condense is `condense.*`."""

    feature_rate: float = option(0.01, "Adam learning rate of the condensed features at the server", above=0)
    train_every: int = option(10, "rounds between trainings of the deployed network at the server", least=1)
    train_steps: int = option(50, "steps of such a training, from a new start", least=1)


@dataclass(frozen=True)
class FedC4Config:
    """Keys of `fedc4`, `fedc4.*`; how clients condense is `condense.*`."""

    groups: int = option(2, "groups of clients that exchange condensed nodes", least=1)
    threshold: float = option(
        0.4, "least cosine, itself excluded, of a node and a client's mean embedding; 1 = no exchange", least=-1, most=1
    )
    rebuild: bool = option(True, "the server rebuilds the graph; false = the learnt adjacency within each client")
    similarity_weight: float = option(1.3, "weight of edges between unlike nodes in the rebuilt graph", least=0)
    sparsity_weight: float = option(0.26, "weight of all edges in the rebuilt graph", least=0)
    rebuild_steps: int = option(50, "steps of rebuilding a graph", least=1)
    released_code: bool = option(False, "clients train on their full graphs, as the public code does")


@dataclass(frozen=True)
class SfgcConfig:
    """Keys of trajectory matching, `sfgc.*`; the budget is `dance.ratio`, as everywhere."""

    experts: int = option(5, "networks trained on the real graph (R)", least=1)
    expert_rate: float = option(0.05, "rate of their gradient descent", above=0)
    latest_start: int = option(50, "latest step of an expert that a student starts from", least=0)
    span: int = option(50, "steps of an expert from a student's start to its goal", least=1)
    steps: int = option(300, "matching steps (T)", least=1)
    unroll: int = option(20, "steps of the student (N)", least=1)
    student_rate: float = option(0.125, "first rate of the student's gradient descent; it is learnt", above=0)
    feature_rate: float = option(0.03, "Adam learning rate of the condensed features", above=0)
