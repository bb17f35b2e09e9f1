"""Regimes: few labels, skew, foreign text and edges, small cores."""
