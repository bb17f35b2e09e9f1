"""Graphs in the formats of other tools: files -> tables of nodes and edges -> a checked graph."""
