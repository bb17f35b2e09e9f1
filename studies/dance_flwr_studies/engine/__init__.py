"""The engine of a study: cells, grids, workers, rows."""
