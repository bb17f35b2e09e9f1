"""What the rounds of a row were trained on: nodes, their labels and the tokens of their texts."""

from statistics import mean

from dance_flwr.methods import get_spec
from dance_flwr_studies.engine.cells import Row


def labelled_nodes(row: Row) -> float | None:
    """Return mean labelled nodes per client that a round takes a loss over, whatever the loss."""
    rotating = row.result["per_condensed_node"].get("supervised_per_round")
    if rotating is not None:
        return float(rotating) / len(row.result["nodes_per_client"])
    card = get_spec(str(row.config["method"])).card
    nodes = _mean_size(row, "core_per_class" if card.condenses else "train_per_class")
    if nodes is None or not card.condenses:
        return nodes
    share = row.result["per_condensed_node"].get("supervised")
    real = _mean_size(row, "train_per_class") if card.trains_on_all_labels else 0.0
    return None if share is None or real is None else float(share * nodes + real)


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


def _mean_size(row: Row, name: str) -> float | None:
    clients = [client for client in row.result["facts"].get(name, []) if client is not None]
    return mean(sum(client.values()) for client in clients) if clients else None
