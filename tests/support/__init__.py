"""What tests share: graphs, builders, runs."""
