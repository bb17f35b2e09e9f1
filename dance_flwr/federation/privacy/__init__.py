"""Differential privacy of uploads, its accounting, and updates in few bits."""
