"""Graph condensation shared by the baselines: budget, learnt adjacency, distances, matching loop.

Most modules are pure functions of tensors and a generator. Only `client` knows a client's data and
writes files; nothing here knows Flower.
"""
