"""The server's side: rounds, strategies, the Grid of known clients, secure sums."""
