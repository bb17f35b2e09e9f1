"""Metrics of evidence: how much predictions depend on it, and controls of the same size."""
