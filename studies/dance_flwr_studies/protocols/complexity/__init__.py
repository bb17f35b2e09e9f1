"""Measured growth of a client's round."""
