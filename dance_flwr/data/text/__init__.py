"""Texts of nodes: sentence-aware chunks, the frozen encoder, and the text bank on disk."""
