"""Deployment: certificates, node keys, the agreed federation file, and checks of a node."""
