"""Slow twins of `dance_flwr.dance`: the paper's algorithm boxes as plain loops, sharing no code
with the package.
"""
