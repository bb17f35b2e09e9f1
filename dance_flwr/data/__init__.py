"""Graphs, partitions, texts, and the folder of one client.

What is missing, damaged, altered or beyond a limit raises a `DataError` where it is read.
"""
