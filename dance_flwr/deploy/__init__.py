"""The operator's side of a real federation: certificates, node keys, the agreed federation file,
checks of a node.
"""
