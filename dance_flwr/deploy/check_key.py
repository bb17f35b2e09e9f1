"""Checks of the node's key: its file, its type, and its registration at the SuperLink."""

import stat

from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.federation.secagg.signatures import fingerprint_of, line_of, load_key


def check_key(node: Node) -> Finding:
    """Check that the key is readable, private, of Flower's type, and matches its public half."""
    if node.key is None:
        return unchecked("give --key FILE, the node's private key")
    key = load_key(node.key)
    mode = stat.S_IMODE(node.key.stat().st_mode)
    # Who can read the key can be this node.
    if mode & 0o077:
        return problem(
            "a key that only its owner can read (mode 600)",
            f"mode {mode:o} of {node.key}",
            f"chmod 600 {node.key}; "
            "if others had access to this machine, create and register a new key",
        )
    beside = node.key.with_name(f"{node.key.name}.pub")
    if (
        # A warning at most: the SuperNode reads the private key alone.
        beside.is_file()
        and beside.read_bytes().split()[1:2] != line_of(key.public_key()).split()[1:2]
    ):
        return warning(
            f"{beside.name} to be the public half of {node.key.name}",
            "another key",
            f"before you send it: ssh-keygen -y -f {node.key} > {beside}",
        )
    return ok(f"ECDSA {key.curve.name}, {fingerprint_of(key.public_key())}, private to its owner")


def check_registration(node: Node) -> Finding:
    """Check that the SuperLink knows the key; the request has no side effects."""
    if node.key is None:
        return unchecked("give --key FILE, the node's private key")
    key = load_key(node.key)
    admits = "admits this node's public key with `dance-flwr deploy admit`"
    # A signed request is sent over TLS only.
    if not node.superlink or not node.probe.secure:
        return unchecked(f"needs a SuperLink reached over TLS; the server operator {admits}")
    from dance_flwr.deploy.registration import is_registered

    roots = node.root_certificates.read_bytes() if node.root_certificates else None
    # Why (decision 10): known and unknown keys are refused differently, and nothing changes.
    if is_registered(node.superlink, roots, key):
        return ok("the SuperLink knows this key")
    return problem(
        f"the SuperLink to know the key {fingerprint_of(key.public_key())}",
        "that it does not",
        f"send the public key to the server operator, who {admits}",
    )
