"""What tests of rivals share: small settings, builders, and naive twins of the algorithms."""
