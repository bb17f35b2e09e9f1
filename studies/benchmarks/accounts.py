"""Count the nodes of finished runs whose reasons do not add up to their answers.

    python studies/benchmarks/accounts.py RUN [RUN ...]

Prints, by run: nodes, the largest difference between an answer's probability and what its account
gives, and nodes whose account speaks against the answer.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit

from dance_flwr.evidence.account import account, log_odds
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.evidence import FinishedRun

_NODES_PER_BLOCK = 1024


def contradictions(run: Path) -> tuple[int, float, int]:
    """Return the number of nodes, the largest gap of a probability, and of nodes contradicted."""
    finished = FinishedRun.open(run)
    nodes, gap, against = 0, 0.0, 0
    for number in finished.clients:
        explainer = finished.explainer(finished.client(finished.data(number)))
        for block in torch.arange(explainer.data.num_nodes).split(_NODES_PER_BLOCK):
            packs = explainer.explain(block).calibrated(
                Calibration(**finished.result["calibration"])
            )
            for row, probs in enumerate(packs.decisive.astype(np.float64)):
                best, rival = int(packs.predicted[row]), int(packs.rival[row])
                odds = sum(log_odds(account(packs, row), best, rival))
                of_two = probs[best] / (probs[best] + probs[rival])
                gap = max(gap, abs(float(expit(odds)) - of_two))
                against += odds < 0
            nodes += len(block)
    return nodes, gap, against


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nodes, gap, against = contradictions(Path(name))
        print(f"{name}: {nodes:,} nodes, largest gap {gap:.1e}, contradicted {against}")
