"""Attacks: what uploads reveal."""
