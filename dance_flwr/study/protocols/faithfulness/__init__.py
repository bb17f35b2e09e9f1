"""Faithfulness of evidence."""
