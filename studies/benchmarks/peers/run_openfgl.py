"""OpenFGL's own trainer, task, model and evaluation; its data set is the exported tensors."""

import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import CLIENTS, EPOCHS, ROUNDS, SEED, Clock, load, stub
from torch_geometric.data import Data

sys.argv = sys.argv[:1]  # which OpenFGL parses
stub("munkres", "torch_sparse")

from openfgl import config  # noqa: E402
from openfgl.flcore import trainer  # noqa: E402
from openfgl.utils.basic_utils import seed_everything  # noqa: E402


def graph(data: dict[str, Any]) -> Data:
    """Return a graph as OpenFGL's data sets have them."""
    found = Data(x=data["x"], edge_index=data["edge_index"], y=data["y"])
    found.num_global_classes = data["classes"]
    return found


class Exported:
    """Takes the place of OpenFGL's `FGLDataset`."""

    def __init__(self, args: Any) -> None:
        self.processed_dir, splits = args.root, Path(args.root) / "node_cls"
        splits.mkdir()
        self.local_data, self.global_data = [], graph(load("all"))
        for number in range(CLIENTS):
            data, place = load(number), load(number)["place"]
            local = graph(data)
            local.global_map = dict(enumerate(place.tolist()))
            self.local_data.append(local)
            for split in ("train", "val", "test"):
                torch.save(data[split], splits / f"{split}_{number}.pt")
                rows = pickle.dumps(place[data[split]].tolist())
                (splits / f"glb_{split}_{number}.pkl").write_bytes(rows)


with tempfile.TemporaryDirectory() as root:
    args = config.args
    args.root, args.dataset, args.fl_algorithm, args.model = root, ["Cora"], "fedavg", ["gcn"]
    args.num_clients, args.num_rounds, args.num_epochs = CLIENTS, ROUNDS, EPOCHS
    args.metrics, args.use_cuda = ["accuracy"], False
    args.evaluation_mode = "local_model_on_local_data"
    seed_everything(SEED)
    trainer.FGLDataset = Exported
    run = trainer.FGLTrainer(args)
    evaluate, clock, best = run.evaluate, Clock(), run.evaluation_result

    def evaluated() -> None:
        """Evaluate, as OpenFGL does at the end of each round."""
        evaluate()
        clock.round(best["best_val_accuracy"], best["best_test_accuracy"])

    run.evaluate = evaluated
    run.train()
    clock.report()
