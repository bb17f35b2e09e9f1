"""Trackers of experiments, one file each: the folder of a run, in the store of another tool."""
