"""Graphs, partitions, texts, and the folder of one client."""
