"""What tests of studies share."""
