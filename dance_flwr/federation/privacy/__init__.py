"""Protection of uploads: secure aggregation, differential privacy, and privacy accounting."""
