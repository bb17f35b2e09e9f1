"""Both sides of the conversation between server and clients; the folder that imports Flower.

A client answers what it refuses with a `UserError`; too few replies raise a `QuorumError`.
"""
