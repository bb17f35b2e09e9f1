"""All uses of Flower's private API.

The public API is `flwr.app`, `flwr.clientapp`, `flwr.serverapp` and `flwr.serverapp.strategy`. The
names below may move in any release of Flower; `tests/federation/test_private_api.py` finds those
that did. Each is imported on first use, as the process of a ClientApp needs few of them.
"""

from importlib import import_module
from typing import Any

_SECAGG = "flwr.common.secure_aggregation"
_WORKFLOW = "flwr.server.workflow"
# By path: the package `flwr.client.mod` also exports a function called `secaggplus_mod`.
_CLIENT_MASKS = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER_MASKS = f"{_WORKFLOW}.secure_aggregation.secaggplus_workflow"
MASK_USERS = (_CLIENT_MASKS, _SERVER_MASKS)
_SUPERNODE = "flwr.supernode"
_TASK = f"{_SUPERNODE}.runtime.run_clientapp"

# Keys for which Flower has no constants. The state that its mod stores at a client names this node,
# the nodes whose shares it holds, the other nodes, and the secret that it has with each.
STATE_STAGE, STATE_SHARES, STATE_THRESHOLD = "current_stage", "share_num", "threshold"
STATE_NODE, STATE_HELD = "nid", "rd_seed_share_dict:K"
STATE_OTHERS, STATE_SECRETS = "ss2_dict:K", "ss2_dict:V"
FITRES = {
    "fitres.parameters": (),
    "fitres.num_examples": ("num_examples",),
    "fitres.metrics": (),
    "fitres.status": ("code", "message"),
}

PRIVATE = {
    # A SuperNode and its tasks. By module, as packages export functions of these names, too.
    "flower_supernode": f"{_SUPERNODE}.cli.flower_supernode:flower_supernode",
    "node_time": f"{_SUPERNODE}.start_client_internal:time",
    "uvicorn": f"{_SUPERNODE}.cli.flower_supernode:uvicorn",
    "run_clientapp": f"{_TASK}:run_clientapp",
    "RuntimeHttpClient": f"{_TASK}:RuntimeHttpClient",
    "install_from_fab": f"{_TASK}:install_from_fab",
    "get_load_client_app_fn": f"{_TASK}:get_load_client_app_fn",
    "AcquireTaskRequest": "flwr.proto.runtime_pb2:AcquireTaskRequest",
    "httpx": "flwr.supercore.protobuf.client:httpx",
    # The simulation runtime that `flwr run` starts, and the pool of its workers.
    "run_simulation": "flwr.simulation.run_simulation:_run_simulation",
    "EventType": "flwr.supercore.telemetry:EventType",
    "FLWR_TELEMETRY_ENABLED": "flwr.supercore.telemetry:FLWR_TELEMETRY_ENABLED",
    "BasicActorPool": "flwr.server.superlink.fleet.vce.backend.raybackend:BasicActorPool",
    # Errors, configurations, runs and grids.
    "ErrorCode": "flwr.common.constant:ErrorCode",
    "parse_config_args": "flwr.common.config:parse_config_args",
    "HttpGrid": "flwr.superlink.grid:HttpGrid",
    "ObjectPushError": "flwr.supercore.inflatable.inflatable_utils:ObjectPushError",
    "DecodeError": "flwr.supercore.protobuf.client:DecodeError",
    "Run": "flwr.supercore.run:Run",
    "TaskIdentity": "flwr.supercore.task_identity:TaskIdentity",
    # SecAgg+, which Flower has for its legacy messages only.
    "SECAGG_CONFIGS": f"{_SECAGG}.secaggplus_constants:RECORD_KEY_CONFIGS",
    "SECAGG_STATE": f"{_SECAGG}.secaggplus_constants:RECORD_KEY_STATE",
    "SecAggKey": f"{_SECAGG}.secaggplus_constants:Key",
    "SecAggStage": f"{_SECAGG}.secaggplus_constants:Stage",
    "secaggplus_mod": "flwr.client.mod:secaggplus_mod",
    "SecAggPlusWorkflow": f"{_WORKFLOW}:SecAggPlusWorkflow",
    "WorkflowState": f"{_SERVER_MASKS}:WorkflowState",
    "MAIN_CONFIGS_RECORD": f"{_WORKFLOW}.constant:MAIN_CONFIGS_RECORD",
    "MAIN_PARAMS_RECORD": f"{_WORKFLOW}.constant:MAIN_PARAMS_RECORD",
    "WorkflowKey": f"{_WORKFLOW}.constant:Key",
    # Its generator of masks, and the modules that hold it under this name.
    "pseudo_rand_gen": f"{_SECAGG}.secaggplus_utils:pseudo_rand_gen",
    "CLIENT_MASKS": f"{_CLIENT_MASKS}:pseudo_rand_gen",
    "SERVER_MASKS": f"{_SERVER_MASKS}:pseudo_rand_gen",
    "generate_shared_key": f"{_SECAGG}.crypto.symmetric_encryption:generate_shared_key",
    # The types of those messages.
    "Code": "flwr.common:Code",
    "FitIns": "flwr.common:FitIns",
    "FitRes": "flwr.common:FitRes",
    "Parameters": "flwr.common:Parameters",
    "Status": "flwr.common:Status",
    "bytes_to_ndarray": "flwr.common:bytes_to_ndarray",
    "ndarray_to_bytes": "flwr.common:ndarray_to_bytes",
    "ndarrays_to_parameters": "flwr.common:ndarrays_to_parameters",
    "parameters_to_ndarrays": "flwr.common:parameters_to_ndarrays",
    "fitres_to_recorddict": "flwr.compat.common.recorddict_compat:fitres_to_recorddict",
    # Asking a SuperLink whether a node's key is registered.
    "ActivateNodeRequest": "flwr.proto.fleet_pb2:ActivateNodeRequest",
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2:DeactivateNodeRequest",
    "ApiErrorCode": "flwr.supercore.error:ApiErrorCode",
    "FlowerError": "flwr.supercore.error:FlowerError",
    "public_key_to_bytes": "flwr.supercore.primitives.asymmetric:public_key_to_bytes",
    "FleetHttpClient": "flwr.supernode.fleet_http_client:FleetHttpClient",
    "NodeAuthHttpInterceptor": (
        "flwr.supernode.node_auth_http_interceptor:NodeAuthHttpInterceptor"
    ),
}


def __getattr__(name: str) -> Any:
    if name not in PRIVATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = PRIVATE[name].partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def replace(name: str, value: object) -> None:
    """Replace a private name in the module that uses it."""
    module, _, attribute = PRIVATE[name].partition(":")
    user = import_module(module)
    getattr(user, attribute)
    setattr(user, attribute, value)
