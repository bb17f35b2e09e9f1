"""Summaries of evidence packs: quoted, or written by a client's language model."""
