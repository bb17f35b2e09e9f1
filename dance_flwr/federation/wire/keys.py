"""Every literal key of a message: record names, keys of configs and metrics, kinds of queries."""

# Kinds of queries, beside Flower's "train" and "evaluate".
HELLO, DESCRIBE, EXCHANGE = "query.hello", "query.describe", "query.exchange"
# A masked sum names its task; "train" and "evaluate" are Flower's, this one is asked under masks
# only.
WEIGH = "weigh"

# Records.
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
STATISTICS, SERVER_PAYLOAD, EXCHANGED = "statistics", "server-payload", "exchanged"
SECURE_SUM, SECURE_LAYOUT = "secure-sum", "layout"
PACKED = "packed-safetensors"  # the one array of an ArrayRecord that crosses a network

# Config of a message to a client.
RUN, PARTITION_DIR, ROUND, FINAL, STEP = "run", "partition-dir", "server-round", "final", "step"
CLIPPING_NORM, NEEDS_INITIAL_UPLOAD = "clipping-norm", "needs-initial-upload"
PROXIMAL_MU = "proximal-mu"  # Flower's own FedProx sends it

# Node config of a SuperNode.
PARTITION_ID, DATA_PATH, DEMANDS_MASKS = "partition-id", "data-path", "secure-aggregation"

# Metrics of a reply.
WEIGHT, LOSS, UNCLIPPED = "num-examples", "loss", "unclipped"
NODES, ENCODER_TOKENS = "nodes", "encoder-tokens"

# Config of a masked sum, and the layout of the answer.
TASK, TOTAL_WEIGHT, LEVELS, UPDATE_RANGE = "task", "total-weight", "levels", "update-range"
NAMES, LENGTHS, MICRO = "names", "lengths", "micro"

USER_ERROR = 1000  # code of an error that a user can correct


def seconds_of(phase: str) -> str:
    """Return the metric with the seconds of a phase of a client's round."""
    return f"seconds-{phase}"


def total_of(split: str) -> str:
    """Return the metric with the number of nodes that were scored on a split."""
    return f"{split}-total"


def correct_of(split: str, view: str) -> str:
    """Return the metric with the hits of a view on a split."""
    return f"{split}-correct-{view}"


def per_class(split: str, count: str) -> str:
    """Return the metric with a count by class on a split, such as "true_positives"."""
    return f"{split}-{count.replace('_', '-')}"
