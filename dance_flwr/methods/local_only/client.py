"""The client side of LocalOnly."""

from dance_flwr.methods.fedavg_full.client import FedAvgFull


class LocalOnly(FedAvgFull):
    """omega_k <- LocalTrain(omega_k), client by client."""
