"""Plug-ins of another package."""
