"""Networks, message passing and training, for every method alike."""
