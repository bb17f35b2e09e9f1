"""Checks of the client's folder: its parts, the encoder, the labels."""

import os
from pathlib import Path
from shlex import quote

import numpy as np

from dance_flwr.config.paths import MANIFEST
from dance_flwr.data.card import CARD, ClientCard, read_card
from dance_flwr.data.digests import check_files
from dance_flwr.data.federation_file import class_mismatch, read_agreement
from dance_flwr.data.partition import read_manifest
from dance_flwr.data.text.bank_slice import META, load_slice, read_meta
from dance_flwr.deploy.finding import Finding, ok, problem, unchecked, warning
from dance_flwr.deploy.node import Node
from dance_flwr.errors import DataError, counted

_FOLDER = "give --data CLIENT_FOLDER"
_AGAIN = "copy the client's folder again"


def check_agreed(node: Node) -> Finding:
    """Check that the agreed federation file can be read."""
    if node.agreed is None:
        return unchecked("give --agreed federation.toml")
    agreed = read_agreement(node.agreed)
    return ok(
        f"{counted(len(agreed.class_names), 'class', 'classes')}, encoder {agreed.encoder}, "
        f"protocol {agreed.protocol}"
    )


def check_data(node: Node) -> Finding:
    """Check that the parts of the folder match: card, files, neighbours, labels, bank, manifest."""
    if node.data is None:
        return unchecked(_FOLDER)
    if not (node.data / "text" / META).is_file() and (node.data / CARD).is_file():
        return _unencoded(node.data)
    # Here alone: the checks before it start without torch.
    import torch

    from dance_flwr.client_data.client_data import ClientData

    # Why (decision 20): digests first, as everything below reads these files.
    check_files(node.data)
    data = ClientData(
        node.data, torch.device("cpu")
    )  # compares the card with ids and neighbour lists
    card, bank = data.card, load_slice(node.data / "text")
    # The card states the number of nodes; parts of another preparation would differ from it.
    sizes = {
        "texts in the bank": len(bank.ptr) - 1,
        "labels": len(data.labels),
        "entries of the split": len(data.split),
    }
    for what, size in sizes.items():
        if size != card.num_nodes:
            return problem(f"{card.num_nodes} {what} in {node.data}", str(size), _AGAIN)
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < -1 or high >= len(card.class_names):
        return problem(
            f"labels from -1 to {len(card.class_names) - 1} in {node.data}",
            f"{low} to {high}",
            _AGAIN,
        )
    if not np.isfinite(np.asarray(bank.embeddings[-1:], np.float32)).all():
        return problem("finite embeddings in the text bank", "others", _encode(node.data))
    _compare_manifest(node.data, card)
    # A run writes its states and evidence there, as the user of the SuperNode.
    if not os.access(node.data, os.W_OK):
        return problem(
            "a folder that this user may write to "
            f"(runs and evidence are stored in {node.data / 'runs'})",
            "that it is read-only",
            "run the check as the SuperNode's user, make that user the owner (chown), "
            "or mount the folder read-write",
        )
    known = int((data.labels >= 0).sum())
    return ok(
        f"client {card.client} of {card.clients}, {counted(card.num_nodes, 'node')}, "
        f"{known:,} labelled, {counted(len(bank.tokens), 'chunk')} of text"
    )


def check_permissions(node: Node) -> Finding:
    """Check that no other user of this machine can open the client's folder or a file in it."""
    if node.data is None or not node.data.is_dir():
        return unchecked(_FOLDER)
    entries = (node.data, *node.data.rglob("*"))
    exposed = [path for path in entries if not path.is_symlink() and path.stat().st_mode & 0o077]
    if exposed:
        return problem(
            "texts, keys and states that only their owner can open",
            f"{len(exposed)} of {len(entries)} files and folders open to others, such as "
            f"{exposed[0]}",
            f"chmod -R go= {node.data}",
        )
    return ok(f"no other user can open the {len(entries)} files and folders in {node.data}")


def check_encoder(node: Node) -> Finding:
    """Check that texts are encoded as agreed, with weights that this machine has."""
    if node.data is None:
        return unchecked(_FOLDER)
    meta = read_meta(node.data / "text") if (node.data / "text" / META).is_file() else None
    if meta is None:
        return _unencoded(node.data)
    agreed = node.agreement
    if agreed is not None:
        expected = {
            "weights_sha256": agreed.encoder_sha256,
            "dim": agreed.text_width,
            "chunk_tokens": agreed.chunk_tokens,
            "max_chunks": agreed.max_chunks,
            "chunker_version": agreed.chunker_version,
        }
        # Chunks and weights make the embeddings, so that all of them must be those agreed on.
        wrong = [key for key, value in expected.items() if meta.get(key) != value]
        if wrong:
            settings = ", ".join(f"{key} {expected[key]}" for key in wrong)
            return problem(
                f"texts encoded with {settings} (encoder {agreed.encoder})",
                ", ".join(f"{key} {meta.get(key)}" for key in wrong),
                f"run `{_encode(node.data)}` with --set for encoder, chunk-tokens and max-chunks "
                "as agreed",
            )
    return _compare_weights(
        str(meta.get("encoder")), str(meta.get("weights_sha256")), agreed is not None
    )


def check_labels(node: Node) -> Finding:
    """Check that the client's class names are the agreed ones, in the same order."""
    if node.data is None:
        return unchecked(_FOLDER)
    if node.agreement is None:
        return unchecked("needs --agreed federation.toml")
    names = read_card(node.data).class_names
    # Names and their order: the number of a class is its place in this list.
    wrong = class_mismatch(node.agreement.class_names, names)
    if wrong:
        return problem(
            f"the {len(node.agreement.class_names)} agreed class names",
            wrong,
            "create the client folder again with `dance-flwr site prepare --agreed FILE`, "
            "or agree on a new file",
        )
    return ok(f"the {len(names)} agreed class names, in the same order")


def _encode(folder: Path) -> str:
    return f"dance-flwr encode {quote(str(folder))}"


def _unencoded(folder: Path) -> Finding:
    return problem("encoded texts", "none", f"run `{_encode(folder)}` on this machine")


def _compare_manifest(folder: Path, card: ClientCard) -> None:
    """Compare a card with the partition's manifest, if that is beside the folder.

    Raises
    ------
    DataError : the folder belongs to another partition, or the manifest was altered
    """
    path = folder.parent / MANIFEST
    # At a node there is the client's folder alone, without a manifest beside it.
    if not path.is_file():
        return
    content = read_manifest(path)
    clients = content["clients"]
    listed = clients[card.client]["ids_sha256"] if card.client < len(clients) else None
    # A folder is copied to its node: one of another partition looks the same otherwise.
    if (content["sha256"], listed) != (card.partition_sha256, card.ids_sha256):
        raise DataError(
            f"{folder}: expected a client folder of the partition in {path}, "
            f"found one of another partition; {_AGAIN}"
        )


def _compare_weights(name: str, sha256: str, compared: bool) -> Finding:
    """Compare the weights that encoded the bank with those on this machine, without network."""
    from dance_flwr.data.text.encoder import resolve_local

    by = f"texts encoded by {name}, sha256 {sha256[:12]}{' as agreed' if compared else ''}"
    try:
        # Without the network, and a warning at most: rounds read the encoded texts.
        installed = resolve_local(name, "float32").weights_sha256
    except (DataError, OSError):
        return warning(
            f"the encoder {name!r} on this machine",
            "none",
            f"rounds do not need it ({by}); install it to encode new texts",
        )
    if installed != sha256:
        return warning(
            f"weights with sha256 {sha256} for {name!r}, which encoded these texts",
            installed,
            "rounds use the encoded texts as they are; restore the weights before encoding again",
        )
    return ok(f"{by}, and the weights on this machine agree")
