"""FederatedScope's own standalone runner, GCN and full-batch trainer on the exported tensors."""

import tempfile
from typing import Any

from common import CLIENTS, DECAY, DROPOUT, EPOCHS, RATE, ROUNDS, SEED, WIDTH, Clock, load, stub
from torch_geometric.data import Data

stub("federatedscope.core.proto")  # gRPC's messages, generated for an older protobuf

from federatedscope.core.auxiliaries import (  # noqa: E402
    data_builder,
    logging,
    runner_builder,
    utils,
    worker_builder,
)
from federatedscope.core.configs.config import global_cfg  # noqa: E402
from federatedscope.core.data import ClientData, StandaloneDataDict  # noqa: E402
from federatedscope.register import register_data  # noqa: E402


def exported(config: Any, client_cfgs: Any = None) -> Any:
    """Return the data of the server, which has number 0, and of the clients."""
    if config.data.type != "exported":
        return None
    found = {}
    for number in range(CLIENTS + 1):
        data = load(number - 1 if number else "all")
        masks = {f"{split}_mask": data[split] for split in ("train", "val", "test")}
        graph = Data(x=data["x"], edge_index=data["edge_index"], y=data["y"], **masks)
        found[number] = ClientData(config, train=[graph], val=[graph], test=[graph])
        # Without the check of `ClientData`, as FederatedScope's own graphs have them.
        dict.update(found[number], data=graph, num_label=data["classes"])
    return StandaloneDataDict(found, config), config


register_data("exported", exported)
config = global_cfg.clone()
with tempfile.TemporaryDirectory() as config.outdir:
    config.use_gpu, config.seed = False, SEED
    config.federate.mode, config.federate.method = "standalone", "FedAvg"
    config.federate.client_num, config.federate.total_round_num = CLIENTS, ROUNDS
    config.federate.make_global_eval = False
    config.data.type, config.dataloader.type, config.dataloader.batch_size = "exported", "pyg", 1
    config.model.type, config.model.task, config.model.hidden = "gcn", "node", WIDTH
    config.model.dropout, config.model.out_channels = DROPOUT, load(0)["classes"]
    config.trainer.type, config.criterion.type = "nodefullbatch_trainer", "CrossEntropyLoss"
    config.train.local_update_steps, config.train.optimizer.type = EPOCHS, "Adam"
    config.train.optimizer.lr, config.train.optimizer.weight_decay = RATE, DECAY
    config.eval.metrics, config.eval.freq, config.early_stop.patience = ["acc"], 1, 0
    logging.update_logger(config)
    utils.setup_seed(SEED)
    data, changed = data_builder.get_data(config=config.clone(), client_cfgs=None)
    config.merge_from_other_cfg(changed)
    config.freeze()
    sides = worker_builder.get_server_cls(config), worker_builder.get_client_cls(config)
    runner = runner_builder.get_runner(*sides, config.clone(), data=data)
    server, clock = runner.server, Clock()
    merge = server.merge_eval_results_from_all_clients

    def merged() -> Any:
        """Merge what the clients measured, as FederatedScope does once in each round."""
        found = merge()
        scores = found["Results_weighted_avg"]
        clock.round(scores["val_acc"], scores["test_acc"])
        return found

    server.merge_eval_results_from_all_clients = merged
    runner.run()
    clock.report()
