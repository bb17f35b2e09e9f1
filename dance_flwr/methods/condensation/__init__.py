"""Graph condensation shared by the baselines: a budget, a learnt adjacency, gradient distances, the
matching loop.

Pure functions of tensors and a generator; no Flower, no client boundary, no files except in
`store`.
"""
