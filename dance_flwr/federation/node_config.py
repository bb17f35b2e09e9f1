"""Read the context of a ClientApp: the run's configuration, the client's number, the terms.

The terms of a node are its operator's demands on every run, set in `--node-config`. A run can be
stricter than these terms; a node refuses a laxer one before it opens its data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, isfinite
from typing import Any

from flwr.app import Context

from dance_flwr.config.options import Value
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import RunConfig, defaults, flatten, parse
from dance_flwr.errors import UserError, unknown
from dance_flwr.federation.wire import keys


def run_config_of(context: Context) -> RunConfig:
    """Return the run's configuration; `clients` = 0 becomes the number in the node's own."""
    values = dict(context.run_config)
    if values.get(keys.CLIENTS) == 0:
        values[keys.CLIENTS] = context.node_config.get(keys.NUM_PARTITIONS, 0)
    items = tuple(sorted(values.items()))  # engines deliver the keys in any order
    return _parsed(items, tuple([type(value) for _, value in items]))


@lru_cache(maxsize=8)  # simulated clients of several runs share a process
def _parsed(items: tuple[tuple[str, Value], ...], types: tuple[type, ...]) -> RunConfig:
    # Types are part of the key, as True and 1 are equal, and only one of them is a valid switch.
    return parse(dict(items))


# Terms of one number, under the names of their attributes.
_NUMBERS = (
    *(keys.MIN_CLIENTS, keys.MIN_NOISE_MULTIPLIER, keys.MAX_EPSILON, keys.MAX_ROUNDS),
    *(keys.MAX_TRAININGS, keys.MAX_LOCAL_EPOCHS, keys.MAX_HIDDEN_DIM, keys.MAX_CHANGE),
)


@dataclass(frozen=True)
class NodeTerms:
    """The terms of a node for every run; the defaults refuse no honest run.

    Attributes
    ----------
    masks : answer under secure aggregation only
    min_clients : fewest clients of a masked sum that stay, whatever threshold a run asks for
    min_noise_multiplier : smallest sigma of differential privacy; 0 = none demanded
    max_epsilon : largest budget that this client may spend, over all runs
    methods : names of the methods that may run here; empty = all
    max_rounds, max_local_epochs, max_hidden_dim : largest values of a run's keys of that name;
        of rounds also the most trainings of one run, and the most repetitions of them
    max_trainings : most trainings of all runs together
    max_change : largest distance of a model that a run sends from the initial one of its seed, and
        largest update of this client, in lengths of that initial model
    limits : (key of a run, its largest value) for other numbers
    """

    masks: bool = False
    min_clients: int = 0
    min_noise_multiplier: float = 0.0
    max_epsilon: float = inf
    methods: tuple[str, ...] = ()
    max_rounds: float = inf
    max_trainings: float = inf
    max_local_epochs: float = inf
    max_hidden_dim: float = inf
    # Why (decision 8): seven times the largest distance measured of the honest runs of all methods.
    max_change: float = 10.0
    limits: tuple[tuple[str, float], ...] = ()

    @property
    def counted(self) -> bool:
        """Whether the number of tasks has a bound, so that they are counted."""
        return min(self.max_rounds, self.max_trainings) < inf


def terms_of(node_config: Mapping[str, Any]) -> NodeTerms:
    """Read the terms from a node's configuration; an unknown key, maybe a typo, is refused."""
    if strange := sorted(node_config.keys() - keys.NODE_CONFIG):
        raise UserError(unknown("--node-config", strange, sorted(keys.NODE_CONFIG)))
    methods = _listed(node_config, keys.METHODS)
    METHODS.check(methods, f"{keys.METHODS} in --node-config")
    values: dict[str, Any] = {
        name.replace("-", "_"): _number(name, node_config[name])
        for name in _NUMBERS
        if name in node_config
    }
    values["min_clients"] = ceil(values.get("min_clients", 0))
    values["limits"] = tuple(map(_limit, _listed(node_config, keys.LIMITS)))
    # Any true value demands masks, so that an unusual one does not open the node's answers.
    return NodeTerms(masks=bool(node_config.get(keys.DEMANDS_MASKS)), methods=methods, **values)


def client_number(node_config: Mapping[str, Any]) -> int:
    """Return the number of this node's client, by default 0."""
    number = node_config.get(keys.PARTITION_ID, 0)
    # `type`, as True is an int for `isinstance`.
    if type(number) is not int or number < 0:
        raise UserError(
            f"{keys.PARTITION_ID}: expected a whole number from 0, found {number!r:.80}; "
            f"write {keys.PARTITION_ID}=K with this client's number K in --node-config"
        )
    return number


def refuse_beyond(terms: NodeTerms, config: RunConfig, round_: int = 0) -> None:
    """Refuse a run that asks for more than its node allows.

    Raises
    ------
    UserError : names the key of the run, what the node allows and the key of its term
    """
    # Some methods send more than a model (docs/privacy.md), so a node may restrict them.
    if terms.methods and config.method not in terms.methods:
        raise UserError(
            f"method: expected one of {', '.join(terms.methods)} ({keys.METHODS} of this node), "
            f"found {config.method}; this node does not take part"
        )
    for name, term, maximum, value in (
        # A server may name a round beyond its own configuration: the larger number counts.
        ("rounds", keys.MAX_ROUNDS, terms.max_rounds, max(config.rounds, round_)),
        ("local-epochs", keys.MAX_LOCAL_EPOCHS, terms.max_local_epochs, config.local_epochs),
        ("hidden-dim", keys.MAX_HIDDEN_DIM, terms.max_hidden_dim, config.hidden_dim),
        *((key, keys.LIMITS, limit, _number_of(config, key)) for key, limit in terms.limits),
    ):
        if value > maximum:
            raise UserError(
                f"{name}: expected at most {maximum:g} ({term} of this node), found {value}; this "
                "node does not take part"
            )


def _number_of(config: RunConfig, key: str) -> float:
    if not isinstance(defaults().get(key), int | float):
        raise UserError(
            f"{keys.LIMITS}: expected keys of a run that are numbers, found {key!r}; correct it in "
            "--node-config"
        )
    value = flatten(config).get(key, -inf)  # a key of another method limits no run of this one
    assert isinstance(value, int | float)
    return value


def _limit(text: str) -> tuple[str, float]:
    key, _, number = (part.strip() for part in text.partition("="))
    try:
        # `float` reads nan and inf too; `_number` refuses them.
        return key, _number(keys.LIMITS, float(number))
    except ValueError:
        raise UserError(
            f"{keys.LIMITS}: expected a list of KEY=NUMBER, found {text!r}; correct it in "
            "--node-config"
        ) from None


def _listed(node_config: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the parts of a value between commas; () without the key."""
    if key not in node_config:
        return ()
    names = tuple(name.strip() for name in str(node_config[key]).split(",") if name.strip())
    # An empty list would allow everything: nobody writes that on purpose.
    if not names:
        raise UserError(
            f"{key}: expected names with commas between them, found none; correct it in "
            "--node-config, or leave it out"
        )
    return names


def _number(name: str, value: Any) -> float:
    # A bool is a number for Python, but no bound. 0 is refused below.
    number = float(value) if isinstance(value, int | float) and value is not True else 0.0
    if not isfinite(number) or number <= 0:
        raise UserError(
            f"{name}: expected a number > 0, found {value!r}; correct it in --node-config, or "
            "leave it out"
        )
    return number
