"""FedGraph's own run_NC: FedAvg by SGD, with an actor of Ray per client, on the exported tensors.

FedGraph tests once, after the last round; the accuracy is that.
"""

import contextlib
import io
from typing import Any

from common import CLIENTS, EPOCHS, ROUNDS, SEED, WIDTH, Clock, load, stub


def stub_all() -> None:
    """Stub modules, in this process and in each of Ray's."""
    stub("dtaidistance", "gdown", "openfhe", "tenseal", "torch_sparse")
    stub("huggingface_hub", "huggingface_hub.errors")
    stub("torchmetrics.functional.retrieval", "torchmetrics.retrieval")


stub_all()

import attridict  # noqa: E402
from fedgraph import federated_methods, server_class, trainer_class, utils_nc  # noqa: E402


class Trainer(trainer_class.Trainer_General):  # type: ignore[misc]
    """A client of the common width, and not of the one that FedGraph has for the data set."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given | {"args_hidden": WIDTH})


class Server(server_class.Server):  # type: ignore[misc]
    """A server of the common width."""

    def __init__(self, inputs: int, width: int, *given: Any) -> None:
        super().__init__(inputs, WIDTH, *given)


def exported(args: Any) -> tuple[Any, ...]:
    """Return what FedGraph's `data_loader` does."""
    whole = load("all")
    rows = {split: whole[split].nonzero().flatten() for split in ("train", "val", "test")}
    nodes = [load(number)["place"].sort().values for number in range(CLIENTS)]
    given = whole["edge_index"], nodes, CLIENTS, 0, rows["train"], rows["test"]
    local = utils_nc.get_in_comm_indexes(*given, idx_val=rows["val"])
    table = whole["edge_index"], whole["x"], whole["y"]
    return *table, *rows.values(), whole["classes"], nodes, *local


federated_methods.data_loader = exported
federated_methods.Server = Server
# Its packages leave this class out; without compression it is `Trainer_General`.
federated_methods.Trainer_General_LowRank = Trainer
clock, mean = Clock(), federated_methods._weighted_nc_metric


def validated(results: Any, weights: list[int], metric: int) -> float:
    """Return a mean over clients; the accuracy, metric 1, ends a round."""
    found: float = mean(results, weights, metric)
    if metric == 1:
        clock.round(found, 0.0)
    return found


federated_methods._weighted_nc_metric = validated
given: dict[str, Any] = {
    "n_trainer": CLIENTS,
    "global_rounds": ROUNDS,
    "local_step": EPOCHS,
    "seed": SEED,
}
# The model that FedGraph has for "cora", and the rate of its examples.
given |= {"fedgraph_task": "NC", "method": "FedAvg", "dataset": "cora", "learning_rate": 0.5}
given |= {"iid_beta": None, "distribution_type": None}  # printed
given |= {"num_layers": 2, "num_hops": 0, "batch_size": -1, "num_cpus_per_trainer": 0}
given |= dict.fromkeys(("gpu", "use_cluster", "use_huggingface", "saveto_huggingface"), False)
given |= dict.fromkeys(("use_dp", "use_encryption", "use_lowrank"), False)
ray = {"include_dashboard": False, "runtime_env": {"worker_process_setup_hook": stub_all}}
with contextlib.redirect_stdout(io.StringIO()) as printed:
    federated_methods.run_fedgraph(attridict({**given, "ray_init_kwargs": ray}))
clock.report(float(printed.getvalue().split("Average test accuracy, ")[1].split()[0]))
