"""Tokens read, encoded and asked."""
