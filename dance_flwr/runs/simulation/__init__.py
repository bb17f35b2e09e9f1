"""Runs on this machine: in one process, or under Flower's simulation engine."""
