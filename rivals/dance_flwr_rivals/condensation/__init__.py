"""Graph condensation shared by the baselines: budget, learnt adjacency, distances, matching loop.

Modules other than `client` are pure functions of tensors and a generator. Only `client` reads a
client's data and writes files; none depends on Flower.
"""
