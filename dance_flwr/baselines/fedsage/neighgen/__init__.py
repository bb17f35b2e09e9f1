"""NeighGen of FedSage+ (Zhang et al., NeurIPS 2021): learn to generate missing neighbours.

Hide some nodes, learn to generate them, and augment the graph with generated neighbours. Pure
functions of tensors that draw from torch's global generator. Only `files` writes to disk; nothing
here knows Flower or messages.
"""
