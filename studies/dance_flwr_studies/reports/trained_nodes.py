"""What the rounds of a row were trained on: nodes, their labels and the tokens of their texts."""

from statistics import mean

from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import MethodCard
from dance_flwr_studies.engine.cells import Row


def nodes_trained_on(row: Row) -> float | None:
    """Return `trained_nodes` per client that has any."""
    if (rotating := _rotating(row)) is not None:
        return rotating / len(row.result["nodes_per_client"])
    return _mean_size(class_counts(row))


def trained_nodes(row: Row) -> float | None:
    """Return condensed nodes of all clients; without condensation, labelled training nodes.

    Where labelled nodes rotate, those of one round.
    """
    if (rotating := _rotating(row)) is not None:
        return rotating
    return float(sum(sum(client.values()) for client in class_counts(row))) or None


def _rotating(row: Row) -> float | None:
    value = row.result.get("per_condensed_node", {}).get("supervised_per_round")
    return None if value is None else float(value)


def labelled_nodes(row: Row) -> float | None:
    """Return mean labelled nodes per client that a round takes a loss over, whatever the loss."""
    nodes, card = nodes_trained_on(row), _card(row)
    if nodes is None or not card.condenses:
        return nodes
    share = row.result["per_condensed_node"].get("supervised")
    real = _mean_size(_per_class(row, "train_per_class")) if card.trains_on_all_labels else 0.0
    return None if share is None or real is None else float(share * nodes + real)


def class_counts(row: Row) -> list[dict[str, int]]:
    """Return condensed nodes per client and class; without condensation, labelled nodes."""
    return _per_class(row, "core_per_class" if _card(row).condenses else "train_per_class")


def full_tokens_per_node(row: Row) -> float:
    """Return encoded tokens of all local nodes over the number of nodes."""
    return float(sum(row.result["encoder_tokens"]) / sum(row.result["nodes_per_client"]))


def selected(name: str, row: Row) -> float | None:
    """Return a count per condensed node; None where none is condensed, or selects any text."""
    counts = row.result["per_condensed_node"]
    if not counts.get("nodes_per_round") or not counts.get("tokens"):
        return None
    return float(counts[name]) if name in counts else None


def tokens_of_a_refresh(row: Row) -> float | None:
    """Return tokens of the evidence that one refresh selects, all clients; None without any."""
    tokens = selected("tokens", row)
    nodes = row.result["per_condensed_node"].get("nodes_per_round")
    return None if tokens is None else float(nodes * tokens)


def _card(row: Row) -> MethodCard:
    return get_spec(str(row.config["method"])).card


def _per_class(row: Row, name: str) -> list[dict[str, int]]:
    clients = row.result.get("facts", {}).get(name, [])
    return [client for client in clients if client is not None]


def _mean_size(clients: list[dict[str, int]]) -> float | None:
    return mean(sum(client.values()) for client in clients) if clients else None
