"""Numbers that stand for splits and missing labels in arrays, and the digest of node ids."""

import hashlib
from collections.abc import Iterable

UNLABELLED = -1
NO_SPLIT, TRAIN, VAL, TEST = 0, 1, 2, 3
SPLIT_NAMES = ("", "train", "val", "test")


def ids_digest(ids: Iterable[str]) -> str:
    """Return the sha256 hex of node ids joined by newlines, for manifests and client cards."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()
