"""Text-attributed graphs: built-in, fetched, imported, or a folder of one's own."""
