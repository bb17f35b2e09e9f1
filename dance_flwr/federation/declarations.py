"""Every message between server and clients: its records, their entries, and what each discloses.

One declaration per message. From it follow the check of a reply, the privacy report, the table of
what leaves a client in docs/privacy.md, and the list of all entries (`entries`). An entry that is
not declared is refused in a reply and in a report. Tensors are declared by record, as a method
chooses their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord

from dance_flwr.client_data.reading_probe import MAX_PROBED
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.sections import PERSONAL
from dance_flwr.data.checks import MAX_CLASS_NAME, MAX_CLASSES
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import FITRES, SECAGG_CONFIGS, SecAggKey, SecAggStage
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.keys import DOWN, UP
from dance_flwr.federation.wire.rules import (
    FLAG,
    MAX_NUMBER,
    Disclosure,
    Entry,
    Form,
    Kind,
    Record,
    Rule,
    Table,
    each,
    list_of,
    real,
    text,
    whole,
)
from dance_flwr.metrics import COUNTS, PHASES, TOKEN_COUNTS
from dance_flwr.nn.calibration import BINS, MAX_LOSS, TEMPERATURES, THOUSANDTHS

MAX_NODES = 2**31 - 1  # of one client
MAX_TOKENS = 2**40  # of one client in one run; as many calls or milliseconds
# Far beyond what an honest client sends, so that a reply cannot fill the server's memory.
MAX_NAME = 200  # characters
_MAX_METRICS, _MAX_PEERS = 1000, 100_000
_MAX_BYTES = 10_000  # of a key or a share
_INDEX, _BLOCK = 4, 16  # bytes of a share: its number, then one block per block of the secret

# What entries disclose.


_Under = tuple[tuple[str, Kind], ...]
# Why (decision 9): epsilon covers model updates; whatever else depends on data is 0 or empty.
_WITHHELD: _Under = tuple((dp, Kind.WITHHELD) for dp in ("central", "distributed", "local"))
_NOISE: _Under = (("distributed", Kind.NOISY), ("local", Kind.NOISY))


def _plain(what: str, brief: str, assumption: str = "", under: _Under = _WITHHELD) -> Disclosure:
    return Disclosure(what, "the server", Kind.PLAIN, assumption, brief, under)


def _public(what: str, brief: str = "", readers: str = "the server, all clients") -> Disclosure:
    return Disclosure(what, readers, Kind.PUBLIC, brief=brief)


def _hidden(what: str, readers: str, assumption: str, brief: str) -> Disclosure:
    return Disclosure(what, readers, Kind.MASKED, assumption, brief)


# Why (decision 20): without the salt, a server that knows all labels but one could try each.
_SALTED = (
    "the server",
    "nobody learns anything from it without the salt, which stays with the client",
)
_EXACT = "exact; 0 or empty under differential privacy, unless the noise is the run's own (seeded)"
_SIZES = "numbers of nodes and tokens"
_MASKS = "keys, shares and signatures of masks"

_MODEL = _plain(
    *("model parameters", "model parameters"),
    *("of one client: what it trained on can be inferred from them", _NOISE),
)
_START = _public("the model that a client trains or scores")
_STATISTICS = _plain(
    *("what the card of the run's method names beside a model", "statistics of its method"),
    "of one client, unmasked",
)
_SCALES = _plain(
    *("the step of each tensor of a model update in int8", "steps of int8"),
    *("of one client", _NOISE),
)
_PAYLOAD = _plain(
    *("what the server computed for this client from other clients' statistics", ""),
    "single rows may be another client's, unmasked",
)
_EXCHANGED = _plain(
    "what the card of the run's method names as exchanged before round 1",
    *("tensors of its method before round 1", "of one client, unmasked"),
)._replace(readers="the server, other clients")
_WEIGHT = _plain(
    "the client's weight in the mean; of an evaluation: the number of scored nodes", "weight"
)
_UNCLIPPED = _plain(
    *("whether the update was within the clipping norm", "whether it was clipped"),
    *(_EXACT, (_NOISE[0], ("local", Kind.WITHHELD))),
)
_LOSS, _SECONDS = _plain("training loss", "loss"), _plain("seconds by phase", "seconds")
_TRAINED_ON = _plain(
    "counts of a round: condensed nodes; neighbours, chunks, tokens and labelled nodes as "
    "evidence; packs written",
    *("counts of its evidence", _EXACT),
)
_SCORED = _plain(
    "counts on a split: nodes, hits by view, and by class nodes, predictions and hits",
    *("counts by class of validation and test nodes", _EXACT),
)
_CALIBRATION = _plain(
    "sums of the final model: loss on validation nodes at 25 temperatures; on test nodes, at each "
    "of them, how far confidence exceeds hits in each of 15 bins (none where withheld)",
    *("sums of their probabilities", _EXACT),
)
_TOKENS = _plain(
    "counts of the run: chunks and tokens read as evidence, each time and once; calls, tokens and "
    "milliseconds of the client's language model",
    *("counts of tokens and calls", _EXACT),
)
_LLM = _public(
    "names of the client's language model and of its tokeniser, if it asked",
    *("names of its language model", "the server"),
)
_LOSSES = _plain(
    "losses on validation nodes of mixtures with the client's own model",
    *("losses of mixtures on validation nodes", _EXACT),
)
_SUMMED_SIZES = _plain("numbers of nodes and of encoded tokens", _SIZES, _EXACT)
_VOTES = _plain(
    "votes on the reading: validation nodes that each one gains and loses (none where withheld)",
    "votes on the reading",
)
_GREETING = _public(
    "number of the client, whether it holds its own data, number of its protocol",
    "numbers of client and protocol",
)
_SCHEMA = _public(
    "names of classes, width of text embeddings, number of clients, hash of the encoder, device",
    "class names, encoder, device",
)
# Under masks a client answers 0 here, and its numbers enter a masked sum.
_NODES = _plain("number of local nodes (0 where it is withheld)", _SIZES)
_ENCODED = _plain("number of encoded tokens (0 where it is withheld)", _SIZES)
WITHHELD = (_VOTES, _NODES, _ENCODED)  # under masks, in the open
_DATA = _hidden("a hash of the client's data and a secret salt", *_SALTED, "a hash of its data")
# Why (decision 20): in the open even under masks, as a sum of hashes means nothing.
_EVIDENCE = _hidden(
    "a hash of the client's evidence and a secret salt", *_SALTED, "a hash of its evidence"
)
_SETTING = _public("settings of the run")
_PROTOCOL = _public("public keys, parameters of the protocol, numbers of nodes", _MASKS)
_LAYOUT = _public(
    "names and lengths of the metrics, and whether they are missing; no values",
    *("names of metrics", "the server"),
)
_SIGNED = _public("signatures of greetings, public keys and survivors, client numbers", _MASKS)
_REQUEST = _public("what is to be summed, the range of updates, all nodes together")
_CONSTANT = _plain("constants that Flower's workflow asks for", _MASKS)._replace(
    kind=Kind.CONSTANT, under=()
)
# What follows rests on assumptions, which the report states beside each key.
_VECTOR = _hidden(
    *("model update, weight and metrics, masked", "nobody; the server reads a sum"),
    "fewer than the threshold of clients collude with the server",
    "model update, weight and metrics in masked sums",
)
_CIPHERTEXT = _hidden(
    *("shares of a client's secrets, encrypted for another client", "their addressee"),
    *("public keys are signed, or the server hands them on unaltered", _MASKS),
)
_SHARE = _hidden(
    *("shares of secrets that take masks off", "the server"),
    *("it asks for one secret of each client; clients refuse to give both", _MASKS),
)

# Answers of clients; parameters are what depends on the run or on the client.


def _answer(answer: type, special: Table, told: Disclosure) -> Record:
    """Declare the fields of an answer, so that one that is added has a rule by its type."""
    rules = {
        "int": whole(),
        "bool": FLAG,
        "str": text(MAX_NAME),
        "tuple[str, ...]": list_of(text(MAX_CLASS_NAME), 1, MAX_CLASSES),
    }
    kinds = {item.name: str(item.type) for item in fields(answer)}
    table = {n: special.get(n) or Entry(told, rules[kind]) for n, kind in kinds.items()}
    return Record(ConfigRecord, table)


_SIGNATURE: Table = {
    keys.CLIENT: Entry(_SIGNED, whole(0, 2**31 - 1)),
    keys.SIGNATURE: Entry(_SIGNED, text(MAX_NAME, bytes)),
}
_SIGNS: Form = {keys.SIGNED: Record(ConfigRecord, _SIGNATURE, optional=True)}
GREETING: Form = {keys.CONFIG: _answer(messages.Hello, {}, _GREETING)} | _SIGNS
SEALED: Form = {
    keys.CONFIG: Record(ConfigRecord, {keys.EVIDENCE_SHA256: Entry(_EVIDENCE, text(64))})
}
EXCHANGED: Form = {keys.EXCHANGED: Record(ArrayRecord, _EXCHANGED)}


def schema(votes: int) -> Form:
    """Declare the answer to DESCRIBE, with this number of votes on the reading."""
    special = {
        "text_dim": Entry(_SCHEMA, whole(1)),
        keys.SCHEMA_NODES: Entry(_NODES, whole(0, MAX_NODES)),
        keys.SCHEMA_TOKENS: Entry(_ENCODED, whole()),
        keys.DATA_SHA256: Entry(_DATA, text(MAX_NAME)),
        "reading_votes": Entry(_VOTES, list_of(whole(0, MAX_PROBED), votes, votes)),
    }
    return {keys.CONFIG: _answer(messages.Schema, special, _SCHEMA)}


def trained(metrics: Table, beside: Sequence[str]) -> Form:
    """Declare the answer to TRAIN; `beside` names the records of tensors beside the model."""
    form = {keys.ARRAYS: Record(ArrayRecord, _MODEL), keys.METRICS: Record(MetricRecord, metrics)}
    tensors = {keys.STATISTICS: _STATISTICS, keys.SCALES: _SCALES}
    return form | {name: Record(ArrayRecord, tensors[name], optional=True) for name in beside}


def training_metrics(weight: Rule, unclipped: Rule | None) -> Table:
    """Declare the metrics of an answer to TRAIN, or of their sum."""
    table = {keys.WEIGHT: Entry(_WEIGHT, weight), keys.LOSS: Entry(_LOSS, real())}
    table |= {keys.UNCLIPPED: Entry(_UNCLIPPED, unclipped)} if unclipped else {}
    table |= each(map(keys.seconds_of, PHASES), _SECONDS, real(0))
    return table | each(COUNTS, _TRAINED_ON, whole())


def weighed(votes: int, largest: int) -> Table:
    """Declare the sums of WEIGH, which exist under masks only."""
    table = {keys.WEIGHT: Entry(_WEIGHT, whole(1))}
    table |= each((keys.NODES, keys.ENCODER_TOKENS), _SUMMED_SIZES, whole())
    rule = list_of(whole(0, largest), votes, votes)
    return table | ({keys.READING_VOTES: Entry(_VOTES, rule)} if votes else {})


def evaluated(metrics: Table, *, final: bool) -> Form:
    """Declare the answer to EVALUATE."""
    form = {keys.METRICS: Record(MetricRecord, metrics)}
    names = each((keys.LLM, keys.TOKENISER), _LLM, text(MAX_NAME))
    return form | ({keys.CONFIG: Record(ConfigRecord, names)} if final else {})


def counts(
    splits: Sequence[str],
    views: Sequence[str],
    nodes: Rule,
    classes: int,
    tokens: Rule,
    scored: Mapping[str, Any] | None,
) -> Table:
    """Declare the metrics of an answer to EVALUATE, of one client or summed over several.

    Parameters
    ----------
    views : that may be counted; "deployed" must be
    nodes : rule of every count of nodes
    classes : their number; 0 = unknown
    tokens : rule of every count of tokens over the run; they come with the test split
    scored : the answer, whose totals bound its calibration; None = it has no calibration
    """
    table = {keys.WEIGHT: Entry(_WEIGHT, nodes)}
    by_class = list_of(nodes, classes, classes or MAX_CLASSES)
    for split in splits:
        table[keys.total_of(split)] = Entry(_SCORED, nodes)
        # A method may count fewer views than it has, but the deployed one is what is validated.
        for view in views:
            table[keys.correct_of(split, view)] = Entry(_SCORED, nodes, optional=view != "deployed")
        table |= each(
            (keys.per_class(split, name) for name in messages.PER_CLASS), _SCORED, by_class
        )
    # Tokens of the run come once, with the counts of the final model.
    if "test" not in splits:
        return table
    table |= each(map(keys.tokens_of, TOKEN_COUNTS), _TOKENS, tokens)
    # The largest sum of a node, and how many sums there are.
    sizes = {
        "val": (MAX_LOSS, len(TEMPERATURES)),
        "test": (2 * THOUSANDTHS, len(TEMPERATURES) * BINS),
    }
    for split, (largest, size) in sizes.items() if scored is not None else ():
        assert scored is not None
        # A total that is not an integer breaks its own rule.
        total = n if type(n := scored.get(keys.total_of(split))) is int else 0
        rule = list_of(whole(0, largest * total), size, size)
        table[keys.calibration_of(split)] = Entry(_CALIBRATION, rule)
    return table


def mixture_losses(nodes: int, size: int, metrics: Mapping[str, Any]) -> Table:
    """Declare the losses of `size` mixtures on up to so many nodes, in an answer to EVALUATE."""
    scored = metrics.get(keys.WEIGHT)
    largest = MAX_LOSS * (scored if isinstance(scored, int) else 0)
    return {
        keys.WEIGHT: Entry(_WEIGHT, whole(0, nodes)),
        keys.LOSSES: Entry(_LOSSES, list_of(whole(0, largest), size, size)),
        keys.seconds_of("train"): Entry(_SECONDS, real(0)),
    }


# Answers to the stages of a masked sum. No rule reads masked values: any integer is valid.


def _is_public_key(value: Any) -> bool:
    # Size before content: untrusted bytes are measured before they are parsed.
    if not isinstance(value, bytes) or len(value) > _MAX_BYTES:
        return False
    try:
        key = serialization.load_pem_public_key(value)
    except (ValueError, TypeError, UnicodeError):
        return False
    # Flower's clients exchange over P-384; a key of another curve makes every other client fail.
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
        return False
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return value == key.public_bytes(serialization.Encoding.PEM, form)


def _is_share(value: Any) -> bool:
    return (
        isinstance(value, bytes)
        and _INDEX + _BLOCK <= len(value) <= _MAX_BYTES
        and (len(value) - _INDEX) % _BLOCK == 0
        # Share number 0 would be the secret itself.
        and any(value[:_INDEX])
    )


_PEERS = list_of(whole(-(2**63), 2**64), 0, _MAX_PEERS)
_LAYOUT_TABLE: Table = {
    keys.NAMES: Entry(_LAYOUT, list_of(text(MAX_NAME), 1, _MAX_METRICS)),
    keys.LENGTHS: Entry(_LAYOUT, list_of(whole(0, MAX_CLASSES), 1, _MAX_METRICS)),
    keys.MICRO: Entry(_LAYOUT, list_of(FLAG, 1, _MAX_METRICS)),
    keys.OMITTED: Entry(_LAYOUT, FLAG),
}
_PARAMETERS, _EXAMPLES, _METRICS, _STATUS = FITRES


def _stage(table: Table) -> Form:
    return {SECAGG_CONFIGS: Record(ConfigRecord, table)}


STAGE_ANSWERS: dict[str, Form] = {
    SecAggStage.SETUP: _SIGNS
    | _stage(
        each(
            (SecAggKey.PUBLIC_KEY_1, SecAggKey.PUBLIC_KEY_2),
            _PROTOCOL,
            Rule("a public key of P-384", "bytes", _is_public_key),
        )
    ),
    SecAggStage.SHARE_KEYS: _stage(
        {
            SecAggKey.DESTINATION_LIST: Entry(_PROTOCOL, _PEERS),
            SecAggKey.CIPHERTEXT_LIST: Entry(
                _CIPHERTEXT, list_of(text(_MAX_BYTES, bytes), 0, _MAX_PEERS)
            ),
        }
    ),
    # The lengths of the two vectors follow from the request and the layout.
    SecAggStage.COLLECT_MASKED_VECTORS: _stage(
        {SecAggKey.MASKED_PARAMETERS: Entry(_VECTOR, list_of(text(2**40, bytes), 2, 2))}
    )
    | {
        keys.SECURE_LAYOUT: Record(ConfigRecord, _LAYOUT_TABLE),
        # Constants of Flower's legacy answer.
        _PARAMETERS: Record(ArrayRecord, {}),
        _EXAMPLES: Record(MetricRecord, {"num_examples": Entry(_CONSTANT, whole(1, 1))}),
        _METRICS: Record(ConfigRecord, {}),
        _STATUS: Record(
            ConfigRecord,
            {"code": Entry(_CONSTANT, whole(0, 0)), "message": Entry(_CONSTANT, text(0))},
        ),
    },
    keys.SURVIVORS: _SIGNS,
    SecAggStage.UNMASK: _stage(
        {
            SecAggKey.NODE_ID_LIST: Entry(_PROTOCOL, _PEERS),
            SecAggKey.SHARE_LIST: Entry(
                _SHARE, list_of(Rule("a share of a secret", "bytes", _is_share), 0, _MAX_PEERS)
            ),
        }
    ),
}


# Requests of the server, which clients check by their meaning (`secagg`, `client.admission`).


def _requests() -> dict[tuple[str, str], Form]:
    key, run = SecAggKey, (keys.RUN, keys.PARTITION_DIR, keys.TEXT_POOLING, keys.EDGE_GATES)
    train = [*run, keys.ROUND, keys.VALIDATE, keys.CLIPPING_NORM, keys.NEEDS_INITIAL_UPLOAD]
    train.append(keys.PROXIMAL_MU)
    score = (*run, keys.ROUND, keys.FINAL, keys.PERSONALISE, keys.LOSSES, keys.SCORED_NODES)
    setup = [key.SAMPLE_NUMBER, key.SHARE_NUMBER, key.THRESHOLD, key.CLIPPING_RANGE]
    setup += [key.TARGET_RANGE, key.MOD_RANGE, key.MAX_WEIGHT]
    survivors = (key.ACTIVE_NODE_ID_LIST, key.DEAD_NODE_ID_LIST)
    options = [keys.TASK, keys.TOTAL_WEIGHT, keys.UPDATE_RANGE]
    options += [keys.LEVELS, keys.BITS, keys.DIGIT_BITS]
    signed = (keys.SIGNED_NODES, keys.SIGNED_CLIENTS, keys.SIGNATURES)
    claims: Form = {keys.SIGNED: Record(ConfigRecord, each(signed, _SIGNED), optional=True)}
    start: Form = {keys.ARRAYS: Record(ArrayRecord, _START)}
    payload: Form = {keys.SERVER_PAYLOAD: Record(ArrayRecord, _PAYLOAD, optional=True)}
    deployed: Form = {keys.DEPLOYED: Record(ArrayRecord, _START, optional=True)}

    def config(*names: str) -> Form:
        return {keys.CONFIG: Record(ConfigRecord, each(names, _SETTING))}

    def stage(*names: str) -> Form:
        return _stage(each((key.STAGE, *names), _PROTOCOL))

    collect = _stage(
        each((key.STAGE, key.SOURCE_LIST), _PROTOCOL) | {key.CIPHERTEXT_LIST: Entry(_CIPHERTEXT)}
    )
    collect |= {keys.SECURE_SUM: Record(ConfigRecord, each(options, _REQUEST))}
    return {
        (keys.HELLO, ""): config(),
        (keys.DESCRIBE, ""): config(keys.PARTITION_DIR),
        (keys.SEAL, ""): config(*run, keys.TEMPERATURE, keys.SCORED_NODES),
        (keys.EXCHANGE, ""): config(*run, keys.STEP) | EXCHANGED,
        (keys.TRAIN, ""): config(*train) | start | deployed | payload,
        (keys.EVALUATE, ""): config(*score) | start,
        (keys.TRAIN, SecAggStage.SETUP): stage(*setup),
        (keys.TRAIN, SecAggStage.SHARE_KEYS): stage(keys.NODE) | claims,
        (keys.TRAIN, SecAggStage.COLLECT_MASKED_VECTORS): (
            collect | config(*train, *score) | start | deployed
        ),
        (keys.TRAIN, keys.SURVIVORS): stage(*survivors),
        (keys.TRAIN, SecAggStage.UNMASK): stage(*survivors) | claims,
    }


def declared() -> dict[tuple[str, str, str], Form]:
    """Return (type, stage of a masked sum, way) -> everything that such a message may hold."""
    # The views of every method, as a report reads runs of any of them.
    views = {view for spec in METHODS.all().values() for view in spec.views}
    views |= {"deployed", "global", *PERSONAL["auto"]}
    scores = counts(("val", "test"), sorted(views), whole(), 0, whole(), {})
    training = training_metrics(whole(), real())
    training |= counts(("val",), sorted(views), whole(), 0, whole(), None)
    answers = {
        keys.TRAIN: trained(training, (keys.STATISTICS, keys.SCALES)),
        keys.EVALUATE: evaluated(scores | mixture_losses(0, 0, {}), final=True),
        # No message of its own: these numbers are in masked vectors only.
        keys.WEIGH: {keys.METRICS: Record(MetricRecord, weighed(1, MAX_NUMBER))},
        keys.HELLO: GREETING,
        keys.DESCRIBE: schema(0),
        keys.SEAL: SEALED,
        keys.EXCHANGE: EXCHANGED,
    }
    return (
        {(kind, "", UP): form for kind, form in answers.items()}
        | {(keys.TRAIN, stage, UP): form for stage, form in STAGE_ANSWERS.items()}
        | {(kind, stage, DOWN): form for (kind, stage), form in _requests().items()}
    )


def entries() -> Iterator[tuple[tuple[str, str, str], str, str, Entry]]:
    """Yield (message, record, key, entry) of every entry of every message; tensors as key "*"."""
    for message, form in declared().items():
        for name, record in form.items():
            content = record.content
            table = {"*": Entry(content)} if isinstance(content, Disclosure) else content
            for key, entry in table.items():
                yield message, name, key, entry


def disclosure(record: str, key: str, way: str = "") -> Disclosure:
    """Return what an entry discloses, of messages of this way; "" = of any."""
    known = _disclosures(METHODS.names())
    for place in [(w, record, k) for w in ([way] if way else [UP, DOWN]) for k in (key, "*")]:
        if place in known:
            return known[place]
    # Refused, not omitted: a report without the key would claim that nothing more was sent.
    raise UserError(
        "privacy report: expected a key that federation/declarations.py describes, "
        f"found {key!r} of {record!r}; describe it there"
    )


@lru_cache(maxsize=2)
def _disclosures(methods: tuple[str, ...]) -> dict[tuple[str, str, str], Disclosure]:
    return {(way, name, key): entry.told for (_, _, way), name, key, entry in entries()}
