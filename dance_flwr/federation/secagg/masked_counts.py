"""Sum counts of graphs over institutions, by files with masks that cancel in the sum of all.

y_k = x_k + sum_{j > k} m_kj - sum_{j < k} m_jk mod 2^32, with m_kj the key stream of the secret
that k and j derive from their keys (`masks`). The sum of all y_k is that of all x_k; a sum without
one of them is uniform.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dance_flwr.data.graphs.limits import listed
from dance_flwr.data.stats import CHARACTERS, GROUP, SECTIONS, Stats
from dance_flwr.disk import write_text
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.masks import derivation, masks, shared_key

MODULUS = 1 << 32
# With two sites, each could subtract its own counts from the sum.
MIN_SITES = 3
_BINS = [0, *(1 << power for power in range(32))]
_SIZES = ("folders", "nodes", "edges", "unlabelled")
_PUBLIC = "public-key"


def create_key(path: Path) -> Path:
    """Write a private key, and the public one for the other sites; return the public file."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = path.with_name(path.name + ".pub")
    for file in (path, public):
        if file.exists():
            raise UserError(f"{file}: expected no file of this name, found one; choose another")
    write_text(path, pem.decode())
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    write_text(public, pem.decode())
    return public


def masked(
    stats: Mapping[str, Mapping[str, int]],
    key: Path,
    others: Sequence[Path],
    classes: Sequence[str],
) -> dict[str, Any]:
    """Return the counts of a site under the masks that it shares with each other site.

    Parameters
    ----------
    key : its private key; others : the public keys of all other sites
    classes : that all sites agreed on, in any order

    Raises
    ------
    UserError : a key cannot be read or is given twice, there are fewer than three sites, or the
        site has a class outside `classes`
    """
    private, public = _private(key), [_public(path) for path in others]
    mine = _hex(private.public_key())
    group = sorted([mine, *map(_hex, public)])
    if len({*group}) < max(len(group), MIN_SITES):
        raise UserError(
            f"--public: expected the public keys of at least {MIN_SITES - 1} other sites, each "
            f"once, found {len({*group}) - 1}: fewer would show each other's counts"
        )
    if absent := sorted(name for name, n in stats["classes"].items() if n and name not in classes):
        found = listed(f"{name!r:.80}" for name in absent)
        raise UserError(f"--classes: expected all that occur here, found none {found}; add them")
    names = _names(classes)
    values = np.array([stats[section].get(name, 0) for section, name in names], np.uint32)
    # The secret of two sites is bound to the sites and the counts.
    digest = hashlib.sha256(json.dumps([group, names]).encode()).hexdigest()
    with derivation(0, "counts", digest):
        for theirs in public:
            shared = shared_key(private, theirs)
            (mask,) = masks(shared, MODULUS, [(len(names),)])
            sign = 1 if _hex(theirs) > mine else -1
            values += (sign * mask % MODULUS).astype(np.uint32)
    content: dict[str, Any] = {section: {} for section in SECTIONS}
    for (section, name), value in zip(names, values.tolist(), strict=True):
        content[section][name] = value
    return {_PUBLIC: mine, GROUP: group, **content}


def unmasked(files: Sequence[Path]) -> Stats:
    """Return the sum over the masked files of all sites.

    Raises
    ------
    UserError : a file is invalid, belongs to other sites or counts something else, or is missing
    """
    contents = [_read(path) for path in files]
    group = contents[0][GROUP]
    names = [[(s, name) for s in SECTIONS for name in content[s]] for content in contents]
    for path, content, each in zip(files, contents, names, strict=True):
        if content[GROUP] != group or each != names[0]:
            raise UserError(
                f"{path}: expected the sites and the classes of {files[0]}, found others"
            )
    found = sorted(content[_PUBLIC] for content in contents)
    if found != group:
        missing = Counter(group) - Counter(found)
        lack = f"none of {min(missing)[:16]}" if missing else "one of them twice"
        raise UserError(
            f"{files[0]}: expected the masked counts of all {len(group)} sites, each once, found "
            f"{len(found)}, {lack}: masks cancel in the sum of all alone"
        )
    total: Stats = {section: Counter() for section in SECTIONS}
    for section, name in names[0]:
        value = sum(content[section][name] for content in contents) % MODULUS
        if value or section in ("sizes", "classes"):
            total[section][name] = value
    return total


def _names(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return (section, name) of every count, the same at all sites."""
    by_section = {
        "sizes": _SIZES,
        "classes": sorted({*classes}),
        "degrees": [str(start) for start in _BINS],
        "characters": [str(start * CHARACTERS) for start in _BINS],
    }
    return [(section, name) for section in SECTIONS for name in by_section[section]]


def _hex(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint).hex()


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{path}: expected a key of `dance-flwr stats --new-key`: {error}"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != ec.SECP256R1.name:
        raise UserError(f"{path}: expected a key of `dance-flwr stats --new-key`, found another")
    return key


def _public(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: expected the public key of a site, found {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP256R1.name:
        raise UserError(f"{path}: expected the public key of a site, found one of another kind")
    return key


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
        numbers = [value for section in SECTIONS for value in content[section].values()]
        names = [content[_PUBLIC], *content[GROUP]]
        if any(type(n) is not int or not 0 <= n < MODULUS for n in numbers):
            raise ValueError("counts that are no whole numbers below 2^32")
        if content.keys() != {_PUBLIC, GROUP, *SECTIONS} or not all(
            type(name) is str for name in names
        ):
            raise ValueError("other entries")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected masked counts of a site, found {error}") from None
    return dict(content)
