"""Graph condensation shared by the baselines: budget, learnt adjacency, distances, matching loop.

Most modules are pure functions of tensors and a generator. Only `cache` writes files, and only
`client` and `selection` know a client's site; nothing here knows Flower.
"""
