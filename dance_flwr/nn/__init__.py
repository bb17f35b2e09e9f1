"""Networks, message passing and training, shared by all methods."""
