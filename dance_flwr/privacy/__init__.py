"""What keeps a client's upload from being read: secure aggregation, differential privacy, and their
record.
"""
