"""Missing neighbours (FedSage+, Zhang et al., NeurIPS 2021): hide some, learn to make them, mend
the graph.

Pure functions of tensors that read torch's own random generator; no Flower, no client boundary, no
files except in `store`.
"""
