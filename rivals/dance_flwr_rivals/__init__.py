"""Rivals and controls: one package each, behind the contract of `dance_flwr.methods`."""
