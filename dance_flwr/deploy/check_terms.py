"""Check of the terms of a node: what its operator demands of every run."""

from click import ClickException

from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.federation.flower import parse_config_args
from dance_flwr.federation.node_config import client_number, terms_of
from dance_flwr.federation.wire import keys

# Those that suit every node. An epsilon does not: few clients cannot afford one.
_EXPECTED = (
    *(keys.DEMANDS_MASKS, keys.MIN_CLIENTS, keys.METHODS),
    *(keys.MAX_ROUNDS, keys.MAX_TRAININGS),
)


def check_terms(node: Node) -> Finding:
    """Check that the node bounds what a run may ask of it, by terms that it can read."""
    if not node.node_config:
        return unchecked("give --node-config, as the SuperNode gets it")
    try:
        config = parse_config_args([node.node_config])
    except (ClickException, OSError, ValueError) as error:
        return problem(
            'a TOML file, or KEY=VALUE with VALUE a number, true, false or "text"',
            str(getattr(error, "strerror", None) or node.node_config),
            "correct --node-config",
        )
    terms, clients = terms_of(config), config.get(keys.NUM_PARTITIONS)
    number = client_number(config)
    if clients and terms.min_clients > clients:
        return problem(
            f"{keys.MIN_CLIENTS} up to {clients}, the number of clients ({keys.NUM_PARTITIONS})",
            f"{terms.min_clients}",
            "lower it, or no sum is ever answered",
        )
    if missing := [key for key in _EXPECTED if not config.get(key)]:
        return warning(
            f"terms for every run in --node-config ({', '.join(_EXPECTED)})",
            f"none of {', '.join(missing)}",
            "add what this node should demand; docs/deployment.md, Terms of a node",
        )
    return ok(
        f"client {number}: masked sums of {terms.min_clients} clients or more, "
        f"{terms.max_rounds:g} rounds a run, {terms.max_trainings:g} trainings in all"
    )
