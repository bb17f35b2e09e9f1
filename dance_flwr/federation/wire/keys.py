"""Every literal key of a message: record names, keys of configs and metrics, types of messages."""

# Types of messages: Flower's own, and the queries of this app.
TRAIN, EVALUATE = "train", "evaluate"
HELLO, DESCRIBE, EXCHANGE = "query.hello", "query.describe", "query.exchange"
SEAL = "query.seal"  # at the end of a run whose clients keep evidence, or its final model
# A masked sum names its task: TRAIN, EVALUATE, or this one, which exists under masks only.
WEIGH = "weigh"

DOWN, UP = "to clients", "to the server"  # ways of a message in the record of a run

# Records.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
DEPLOYED = "deployed"  # the model to validate, where it is not the one to train
STATISTICS, SERVER_PAYLOAD, EXCHANGED = "statistics", "server-payload", "exchanged"
SCALES, STEPS = "scales", "steps"  # of a model update in int8: a record, and its one array
SECURE_SUM, SECURE_LAYOUT = "secure-sum", "layout"
SIGNED = "signed"
PACKED = "packed-safetensors"  # the one array of an ArrayRecord that crosses a network

# What a greeting states under every PROTOCOL, fields of `messages.Hello`.
PARTITION, PROTOCOL = "partition", "protocol"

# Config of a message to a client.
RUN, PARTITION_DIR, ROUND, FINAL, STEP = "run", "partition-dir", "server-round", "final", "step"
VALIDATE = "validate"  # asks to validate the deployed model before training
CLIPPING_NORM, NEEDS_INITIAL_UPLOAD = "clipping-norm", "needs-initial-upload"
# Of personal models: asks for the losses of mixtures; with the final model, their sums.
PERSONALISE, LOSSES, SCORED_NODES = "personalise", "mixture-losses", "scored-nodes"
TEMPERATURE = "temperature"  # that was fitted on so many scored nodes, of `nn.calibration`
TEXT_POOLING, EDGE_GATES = "text-pooling", "edge-gates"  # the reading that the federation chose
PROXIMAL_MU = "proximal-mu"  # Flower's own FedProx sends it

# Node config of a SuperNode.
PARTITION_ID, NUM_PARTITIONS = "partition-id", "num-partitions"
CLIENTS = "clients"  # of the run's configuration; 0 = as many as there are SuperNodes
DATA_PATH, DEMANDS_MASKS = "data-path", "secure-aggregation"
DEVICE, MEMORY_RATIO = "device", "gpu-memory-ratio"
SIGNING_KEY, PEER_KEYS = "signing-key", "peer-keys"
# The node's terms, `node_config.NodeTerms`.
MIN_CLIENTS, METHODS = "min-clients", "methods"
MIN_NOISE_MULTIPLIER, MAX_EPSILON = "min-noise-multiplier", "max-epsilon"
MAX_ROUNDS, MAX_LOCAL_EPOCHS = "max-rounds", "max-local-epochs"
MAX_TRAININGS = "max-trainings"
MAX_HIDDEN_DIM, MAX_CHANGE, LIMITS = "max-hidden-dim", "max-change", "limits"
NODE_CONFIG = {
    *(PARTITION_ID, NUM_PARTITIONS, DATA_PATH, DEMANDS_MASKS, DEVICE, MEMORY_RATIO),
    *(SIGNING_KEY, PEER_KEYS, MIN_CLIENTS, METHODS, MIN_NOISE_MULTIPLIER, MAX_EPSILON),
    *(MAX_ROUNDS, MAX_TRAININGS, MAX_LOCAL_EPOCHS, MAX_HIDDEN_DIM, MAX_CHANGE, LIMITS),
}

# Fields of `messages.Schema` that a client may withhold.
SCHEMA_NODES, SCHEMA_TOKENS = "num_nodes", "encoder_tokens"
# Those that all clients of a run have in common.
SCHEMA_COMMON = ("class_names", "text_dim", "encoder_sha256")

# Hashes that fix what a client holds: its data (a field of `messages.Schema`), its evidence.
DATA_SHA256, EVIDENCE_SHA256 = "data_sha256", "evidence_sha256"

# Metrics of a reply.
WEIGHT, LOSS, UNCLIPPED = "num-examples", "loss", "unclipped"
NODES, ENCODER_TOKENS, READING_VOTES = "nodes", "encoder-tokens", "reading-votes"

# Names in the answer with the final model, which no masked sum has.
LLM, TOKENISER = "llm", "tokeniser"

# Config of a masked sum, and the layout of the answer.
TASK, TOTAL_WEIGHT, UPDATE_RANGE = "task", "total-weight", "update-range"
LEVELS, BITS, DIGIT_BITS = "levels", "bits", "digit-bits"
NAMES, LENGTHS, MICRO = "names", "lengths", "micro"
OMITTED = "omitted"  # whether the numbers of that layout are missing

# The stage in which clients sign who is in a sum; the signature of a reply, and those of a request.
SURVIVORS = "survivors"
CLIENT, SIGNATURE = "client", "signature"
SIGNED_NODES, SIGNED_CLIENTS, SIGNATURES = "nodes", "clients", "signatures"

NODE = "<node>"  # stands for the number of a node in the record of messages

USER_ERROR = 1000  # code of an error that a user can correct
INVALID_REPLY = 1001  # code of the error that replaces a reply that breaks its rules


def action_of(query: str) -> str:
    """Return the name under which Flower's `ClientApp.query` registers a query."""
    return query.partition(".")[2]


def seconds_of(phase: str) -> str:
    """Return the metric with the seconds of a phase of a client's round."""
    return f"seconds-{phase}"


def total_of(split: str) -> str:
    """Return the metric with the number of nodes that were scored on a split."""
    return f"{split}-total"


def correct_of(split: str, view: str) -> str:
    """Return the metric with the hits of a view on a split."""
    return f"{split}-correct-{view}"


def tokens_of(count: str) -> str:
    """Return the metric with a count of tokens or calls over a run, such as "distinct_chunks"."""
    return f"tokens-{count.replace('_', '-')}"


def calibration_of(split: str) -> str:
    """Return the metric with `metrics.Counts.calibration` of a split."""
    return f"{split}-calibration"


def per_class(split: str, count: str) -> str:
    """Return the metric with a count by class on a split, such as "true_positives"."""
    return f"{split}-{count.replace('_', '-')}"
