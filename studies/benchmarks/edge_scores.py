"""How well the cosine score of `llm4rgnn-cosine` tells edges from random ones: AUC per data set.

A fifth of the edges again, at random between nodes without one, as in an attack that knows nothing.

    python studies/benchmarks/edge_scores.py cora citeseer --clients 1 5 --seeds 0 1 2
"""

import argparse

import torch
from dance_flwr_rivals.llm4rgnn.pairs import random_pairs, undirected_edges
from dance_flwr_rivals.llm4rgnn.scoring import by_cosine

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.reading import read_config
from dance_flwr.data.prepare import prepare

SHARE = 0.2


def scores_of(data: ClientData, config: object, seed: int) -> tuple[list[int], list[int]]:
    """Return the scores of a client's edges and of its planted random ones."""
    edges = undirected_edges(data.graph)
    draws = torch.Generator().manual_seed(seed)
    planted = random_pairs(data.graph, round(SHARE * len(edges)), draws)
    found = by_cosine(data, config, "")  # type: ignore[arg-type]
    return found.of_others(edges).tolist(), found.of_others(planted).tolist()


def main() -> None:
    """Print a table."""
    from sklearn.metrics import roc_auc_score

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    print("| data | clients | mean score, edges | mean score, random | AUC within clients |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for data in arguments.datasets:
        for clients in arguments.clients:
            keys = [f"data={data}", f"clients={clients}", "max-chunks=16"]
            config = read_config([], [*keys, "method=llm4rgnn-cosine"], {})
            folder, rows = prepare(config).folder, []
            for seed in arguments.seeds:
                for client in range(clients):
                    client_data = ClientData(folder / f"client-{client}", torch.device("cpu"))
                    real, planted = scores_of(client_data, config, seed)
                    truth = [1] * len(real) + [0] * len(planted)
                    auc = float(roc_auc_score(truth, real + planted))
                    rows.append((sum(real) / len(real), sum(planted) / len(planted), auc))
            means = torch.tensor(rows).mean(0).tolist()
            print(f"| {data} | {clients} | {means[0]:.2f} | {means[1]:.2f} | {means[2]:.3f} |")


if __name__ == "__main__":
    main()
