"""What every key of a message discloses, to whom, and under which assumption.

`disclosure` refuses a key that is not listed here. Records of tensors are described as a whole, as
their keys are the names of a method's tensors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import NamedTuple

from dance_flwr.config.plugins import METHODS
from dance_flwr.config.sections import PERSONAL
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import FITRES, SECAGG_CONFIGS, SecAggKey
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.counts import PER_CLASS
from dance_flwr.federation.wire.messages import Hello, Schema
from dance_flwr.metrics import COUNTS, PHASES, TOKEN_COUNTS

_SERVER, _ALL = "the server", "the server, all clients"
# Why (decision 20): without the salt, a server that knows all labels but one could try each.
_HIDES = "nobody learns anything from it without the salt, which stays with the client"


class Disclosure(NamedTuple):
    """The content of a key, and its readers.

    Attributes
    ----------
    what : the content, in a few words
    readers : who can read it
    assumption : the condition under which nobody else can, or what can be inferred from it
    brief : the content in a list of everything that left a client; "" = no client sends it
    """

    what: str
    readers: str
    assumption: str = ""
    brief: str = ""


# Records of tensors, whatever the names of these.
TENSORS: Mapping[str, Disclosure] = {
    keys.ARRAYS: Disclosure(
        "model parameters",
        _SERVER,
        "of one client: what it trained on can be inferred from them",
        "model parameters",
    ),
    keys.STATISTICS: Disclosure(
        "what the card of the run's method names beside a model",
        _SERVER,
        "of one client, unmasked",
        "statistics of its method",
    ),
    keys.SCALES: Disclosure(
        "the step of each tensor of a model update in int8",
        _SERVER,
        "of one client",
        "steps of int8",
    ),
    keys.SERVER_PAYLOAD: Disclosure(
        "what the server computed for this client from other clients' statistics",
        "the client it is sent to",
        "single rows may be another client's, unmasked",
    ),
    keys.EXCHANGED: Disclosure(
        "what the card of the run's method names as exchanged before round 1",
        "the server, other clients",
        "of one client, unmasked",
        "tensors of its method before round 1",
    ),
}

# Why (decision 9): epsilon covers model updates; counts and metrics have no noise.
_EXACT = "exact; no noise is added to counts"
_WITHHELD = "exact; all 0 under differential privacy, unless the noise is the run's own (seeded)"
_TRAINED_ON = Disclosure(
    "counts of a round: condensed nodes; neighbours, chunks, tokens and labelled nodes as "
    "evidence; packs written",
    _SERVER,
    _EXACT,
    "counts of its evidence",
)
SCORED = Disclosure(
    "counts on a split: nodes, hits by view, and by class nodes, predictions and hits",
    _SERVER,
    _WITHHELD,
    "counts by class of validation and test nodes",
)
_CALIBRATION = Disclosure(
    "sums of the final model: loss on validation nodes at 25 temperatures; on test nodes, at each "
    "of them, how far confidence exceeds hits in each of 15 bins (none where withheld)",
    _SERVER,
    _EXACT,
    "sums of their probabilities",
)
_VOTES = Disclosure(
    "votes on the reading: validation nodes that each one gains and loses (none where withheld)",
    _SERVER,
    brief="votes on the reading",
)
_TOKENS = Disclosure(
    "counts of the run: chunks and tokens read as evidence, each time and once; calls, tokens and "
    "milliseconds of the client's language model",
    _SERVER,
    _EXACT,
    "counts of tokens and calls",
)
_MODEL = Disclosure(
    "names of the client's language model and of its tokeniser, if it asked",
    _SERVER,
    brief="names of its language model",
)
_SETTING = Disclosure("settings of the run", _ALL)
_GREETING = Disclosure(
    "number of the client, whether it holds its own data, number of its protocol",
    _ALL,
    brief="numbers of client and protocol",
)
_SCHEMA = Disclosure(
    "names of classes, width of text embeddings, number of clients, hash of the encoder, device",
    _ALL,
    brief="class names, encoder, device",
)
_MASKS = "keys, shares and signatures of masks"
_PROTOCOL = Disclosure(
    "public keys, parameters of the protocol, numbers of nodes", _ALL, brief=_MASKS
)
_LAYOUT = Disclosure(
    "names and lengths of the metrics, and whether they are missing; no values",
    _SERVER,
    brief="names of metrics",
)
_SIGNED = Disclosure(
    "signatures of greetings, public keys and survivors, client numbers", _ALL, brief=_MASKS
)
_SIZES = "numbers of nodes and tokens"


def disclosures() -> dict[tuple[str, str], Disclosure]:
    """Return the disclosure of every (record, key) whose record does not hold tensors."""
    return _masked() | _metrics() | _config()


def disclosure(record: str, key: str) -> Disclosure:
    """Return the disclosure of one key of one record."""
    # Refused, not omitted: a report without the key would claim that nothing more was sent.
    described = TENSORS.get(record) or disclosures().get((record, key))
    if described is None:
        raise UserError(
            "privacy report: expected a key that federation/disclosures.py describes, "
            f"found {key!r} of {record!r}; describe it there"
        )
    return described


def _metrics() -> dict[tuple[str, str], Disclosure]:
    # The views of every method, as a report reads runs of any of them.
    views = {view for spec in METHODS.all().values() for view in spec.views}
    views |= {"deployed", "global", *PERSONAL["auto"]}
    scored: set[str] = set()
    for split in ("val", "test"):
        scored |= {keys.total_of(split), *(keys.per_class(split, name) for name in PER_CLASS)}
        scored |= {keys.correct_of(split, view) for view in views}
    phases = [keys.seconds_of(phase) for phase in PHASES]
    return {
        (keys.METRICS, keys.WEIGHT): Disclosure(
            "the client's weight in the mean; of an evaluation: the number of scored nodes",
            _SERVER,
            brief="weight",
        ),
        (keys.METRICS, keys.UNCLIPPED): Disclosure(
            "whether the update was within the clipping norm",
            _SERVER,
            _EXACT,
            "whether it was clipped",
        ),
        **_each(keys.METRICS, [keys.LOSS], Disclosure("training loss", _SERVER, brief="loss")),
        **_each(keys.METRICS, phases, Disclosure("seconds by phase", _SERVER, brief="seconds")),
        **_each(
            keys.METRICS,
            [keys.NODES, keys.ENCODER_TOKENS],
            Disclosure("numbers of nodes and of encoded tokens", _SERVER, _EXACT, _SIZES),
        ),
        (keys.METRICS, keys.READING_VOTES): _VOTES,
        (keys.METRICS, keys.LOSSES): Disclosure(
            "losses on validation nodes of mixtures with the client's own model",
            _SERVER,
            _EXACT,
            "losses of mixtures on validation nodes",
        ),
        **_each(keys.METRICS, COUNTS, _TRAINED_ON),
        **_each(keys.METRICS, scored, SCORED),
        **_each(keys.METRICS, map(keys.calibration_of, ("val", "test")), _CALIBRATION),
        **_each(keys.METRICS, map(keys.tokens_of, TOKEN_COUNTS), _TOKENS),
    }


def _config() -> dict[tuple[str, str], Disclosure]:
    settings = [
        *(keys.RUN, keys.PARTITION_DIR, keys.ROUND, keys.FINAL, keys.STEP),
        *(keys.CLIPPING_NORM, keys.NEEDS_INITIAL_UPLOAD, keys.PROXIMAL_MU),
        *(keys.TEXT_POOLING, keys.EDGE_GATES),
        *(keys.PERSONALISE, keys.LOSSES, keys.SCORED_NODES, keys.TEMPERATURE),
    ]
    # Under masks a client answers 0 here, and its numbers enter a masked sum.
    nodes = Disclosure("number of local nodes (0 where it is withheld)", _SERVER, brief=_SIZES)
    tokens = Disclosure("number of encoded tokens (0 where it is withheld)", _SERVER, brief=_SIZES)
    data = Disclosure(
        "a hash of the client's data and a secret salt", _SERVER, _HIDES, "a hash of its data"
    )
    # Why (decision 20): in the open even under masks, as a sum of hashes means nothing.
    evidence = Disclosure(
        *("a hash of the client's evidence and a secret salt", _SERVER, _HIDES),
        brief="a hash of its evidence",
    )
    return {
        **_each(keys.CONFIG, settings, _SETTING),
        **_each(keys.CONFIG, [item.name for item in fields(Hello)], _GREETING),
        **_each(keys.CONFIG, [item.name for item in fields(Schema)], _SCHEMA),
        **_each(keys.CONFIG, [keys.LLM, keys.TOKENISER], _MODEL),
        (keys.CONFIG, keys.SCHEMA_NODES): nodes,
        (keys.CONFIG, keys.SCHEMA_TOKENS): tokens,
        (keys.CONFIG, "reading_votes"): _VOTES,
        (keys.CONFIG, keys.DATA_SHA256): data,
        (keys.CONFIG, keys.EVIDENCE_SHA256): evidence,
    }


def _masked() -> dict[tuple[str, str], Disclosure]:
    """Return the disclosures of the records that only secure aggregation sends."""
    key = SecAggKey
    protocol = [
        *(key.STAGE, key.SAMPLE_NUMBER, key.SHARE_NUMBER, key.THRESHOLD, key.CLIPPING_RANGE),
        *(key.TARGET_RANGE, key.MOD_RANGE, key.MAX_WEIGHT, key.PUBLIC_KEY_1, key.PUBLIC_KEY_2),
        *(key.DESTINATION_LIST, key.SOURCE_LIST, key.NODE_ID_LIST),
        *(key.ACTIVE_NODE_ID_LIST, key.DEAD_NODE_ID_LIST, keys.NODE),
    ]
    request = Disclosure(
        "what is to be summed, the range of updates, all nodes together", "all clients"
    )
    constant = Disclosure("constants that Flower's workflow asks for", _SERVER, brief=_MASKS)
    signatures = [keys.CLIENT, keys.SIGNATURE]
    signatures += [keys.SIGNED_NODES, keys.SIGNED_CLIENTS, keys.SIGNATURES]
    return {
        # What follows rests on assumptions, which the report states beside each key.
        (SECAGG_CONFIGS, key.MASKED_PARAMETERS): Disclosure(
            "model update, weight and metrics, masked",
            "nobody; the server reads a sum",
            "fewer than the threshold of clients collude with the server",
            "model update, weight and metrics in masked sums",
        ),
        (SECAGG_CONFIGS, key.CIPHERTEXT_LIST): Disclosure(
            "shares of a client's secrets, encrypted for another client",
            "their addressee",
            "public keys are signed, or the server hands them on unaltered",
            _MASKS,
        ),
        (SECAGG_CONFIGS, key.SHARE_LIST): Disclosure(
            "shares of secrets that take masks off",
            _SERVER,
            "it asks for one secret of each client; clients refuse to give both",
            _MASKS,
        ),
        **_each(SECAGG_CONFIGS, protocol, _PROTOCOL),
        **_each(keys.SIGNED, signatures, _SIGNED),
        **_each(keys.SECURE_LAYOUT, [keys.NAMES, keys.LENGTHS, keys.MICRO, keys.OMITTED], _LAYOUT),
        **_each(
            keys.SECURE_SUM,
            [
                *(keys.TASK, keys.TOTAL_WEIGHT, keys.UPDATE_RANGE),
                *(keys.LEVELS, keys.BITS, keys.DIGIT_BITS),
            ],
            request,
        ),
        **{(record, name): constant for record, names in FITRES.items() for name in names},
    }


def _each(record: str, names: Iterable[str], what: Disclosure) -> dict[tuple[str, str], Disclosure]:
    return {(record, name): what for name in names}
