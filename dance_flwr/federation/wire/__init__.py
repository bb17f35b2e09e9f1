"""What travels between server and clients."""
