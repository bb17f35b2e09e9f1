"""The client side of training in isolation."""

from dance_flwr.methods.fedavg_full.client import FedAvgFull


class LocalOnly(FedAvgFull):
    """omega_k <- LocalTrain(omega_k), client by client."""
