"""DANCE and FedAvg written out: the whole loop of a federation in one file, without Flower.

    python examples/fedavg.py            # pydocs, 3 clients, 6 rounds: DANCE beside FedAvg

Each client has a folder of its own: its part of the graph, its texts and their embeddings. In round
t the server sends the model omega^(t-1). A client of DANCE then

1. condenses its graph to a core of a few percent of its nodes (Alg. 2 of the paper),
2. selects neighbours and text chunks of the core as evidence, under budgets (Alg. 3),
3. rebuilds a light graph on the core (Alg. 4) and trains omega on it,

and sends the trained model back; the server averages. Under Flower the same classes do the same
work; `dance_flwr.federation` adds messages, masks, noise, retries and checkpoints.
`dance_flwr.dance.algorithm.train_round` has steps 1 to 3 written out.
"""

import sys

import torch

from dance_flwr.client_data.reading_probe import with_choice
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.prepare import prepare
from dance_flwr.federation.client.client import Client, initial_model, open_client, shape_of
from dance_flwr.federation.server.session import chosen_reading
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.server_side import State, Upload, weighted_mean

RUN = "example"  # the name of the run, under which clients keep their cores and evidence
UPDATE_RANGE = 1.0  # unit of the fixed-point sums, which make a mean independent of its order


def train_clients(clients: list[Client], model: State, round_: int) -> State:
    """Return omega^(t) = sum_k n_k omega_k / sum_k n_k, where client k trained omega_k."""
    info = RoundInfo(RUN, round_, model_fingerprint(model))
    uploads = []
    for number, client in enumerate(clients):
        trained, _ = client.train(model, info)  # steps 1 to 3; `trained` is all that leaves
        uploads.append(Upload(number, trained, client.weight))
    return weighted_mean(uploads, model, UPDATE_RANGE)


def accuracy(clients: list[Client], model: State, round_: int) -> float:
    """Return correct over all validation nodes: clients report counts, never predictions."""
    info = RoundInfo(RUN, round_, model_fingerprint(model))
    counts = [client.validate(model, info)["val"] for client in clients]
    correct = sum(count.correct["deployed"] for count in counts)
    return correct / sum(count.total for count in counts)


def federate(config: RunConfig) -> State:
    """Run all rounds; print the validation accuracy of each, and return the last model."""
    # Louvain communities become clients; each text is encoded once, before round 1.
    folder = prepare(config).folder
    folders = [folder / f"client-{k}" for k in range(config.clients)]
    # All read texts and edges in the way that their votes elect.
    votes = [open_client(path, config).reading_votes() for path in folders]
    config = with_choice(config, chosen_reading(config, votes))
    clients = [open_client(path, config) for path in folders]
    card = clients[0].data.card
    shape = shape_of(clients[0].data.text_dim, len(card.class_names), config)
    model: State = initial_model(shape, config).state_dict()
    for round_ in range(1, config.rounds + 1):
        model = train_clients(clients, model, round_)
        print(f"{config.method:12} round {round_}  accuracy {accuracy(clients, model, round_):.4f}")
    return model


if __name__ == "__main__":
    data, rounds = (sys.argv[1:] + ["pydocs", "6"][len(sys.argv) - 1 :])[:2]
    torch.set_num_threads(1)
    for method in ("dance", "fedavg-full"):
        keys = {"data": data, "method": method, "clients": 3, "rounds": int(rounds)}
        print(f"{method:12} model    {model_fingerprint(federate(parse(keys)))}")
