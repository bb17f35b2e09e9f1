"""What one client has: its graph, texts and labels as tensors, and the inputs of its network."""
