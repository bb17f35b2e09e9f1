"""What round 1 refuses or cannot learn, found in the graph before anything is encoded.

A check that ends the run raises `DataError`; the others return a line of warning, "" where nothing
is wrong. Nothing here imports torch: a graph without labels is refused in the time that reading it
takes.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dance_flwr.data.graphs.limits import listed
from dance_flwr.errors import DataError, counted

if TYPE_CHECKING:  # wire/rules reads the limits, in processes that need no scipy
    from tokenizers import Tokenizer

    from dance_flwr.data.graphs.graph import TextGraph

# What a client may state of its classes; the server refuses any other description of its data.
MAX_CLASSES = 10_000
MAX_CLASS_NAME = 200  # characters

_TRAIN = 1  # of NO_SPLIT, TRAIN, VAL, TEST of `dance_flwr.data.graphs.graph`

# A sample that takes a tenth of a second; characters of each of its texts.
SAMPLE, _CHARACTERS = 128, 500
# Of letters. The default encoder spells 4 to 7 % of German, French and Polish, a quarter of Turkish
# and Vietnamese, and more than 90 % of Russian, Greek and Arabic.
_MAX_UNREAD = 1 / 3
_IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))  # with kana


def check_graph(graph: "TextGraph", clients: int) -> None:
    """Check what can be known before the graph is partitioned.

    Raises
    ------
    DataError : there are fewer nodes than clients, no node has a label, or the classes are too many
        or have too long a name
    """
    if graph.num_nodes < clients:
        raise DataError(
            f"{graph.name}: expected at least one node per client, found "
            f"{counted(graph.num_nodes, 'node')} for {counted(clients, 'client')}; set clients to "
            f"{graph.num_nodes} or fewer"
        )
    if fault := without_labels(graph.labels):
        raise DataError(f"{graph.name}: {fault}")
    check_classes(graph.class_names)


def check_classes(names: Sequence[str]) -> None:
    """Check that a client can state its classes: not too many, none with too long a name."""
    if len(names) > MAX_CLASSES:
        raise DataError(
            f"classes: expected at most {MAX_CLASSES:,}, found {len(names):,}; give --label a "
            "column of classes, not of texts or ids"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"classes: expected different names, found {twice!r} twice; rename one")
    if (longest := max(names, key=len, default="")) and len(longest) > MAX_CLASS_NAME:
        raise DataError(
            f"classes: expected names of at most {MAX_CLASS_NAME} characters, found {len(longest)} "
            f"in {longest[:60] + ' ...'!r}; shorten it in the node table, or give --label another "
            "column"
        )


def without_labels(labels: NDArray[np.int64]) -> str:
    """Return that no node has a label, which one client of several may do without."""
    if (labels >= 0).any():
        return ""
    return (
        "no node has a label: nothing to learn; give --label COLUMN to `dance-flwr data import`, "
        "or fill the column 'label' of the node table"
    )


def check_training(splits: NDArray[np.int64]) -> None:
    """Check that a client has a training label; [classes, 4] labelled nodes by class and split."""
    if not splits[:, _TRAIN].any():
        raise DataError(
            f"training labels: expected at least one at a client, found none among "
            f"{int(splits.sum()):,} labelled nodes; raise train-ratio, or give nodes the split "
            "'train'"
        )


def untrained_classes(names: Sequence[str], splits: NDArray[np.int64]) -> str:
    """Return which classes are scored and never trained."""
    scored = splits[:, _TRAIN + 1 :].sum(axis=1)
    lost = np.flatnonzero((splits[:, _TRAIN] == 0) & (scored > 0))
    if not len(lost):
        return ""
    return (
        f"{len(lost):,} of {len(names):,} classes have no training label, so that their "
        f"{int(scored[lost].sum()):,} validation and test nodes count as wrong: "
        f"{listed(repr(names[int(k)]) for k in lost)}; raise train-ratio, or give nodes of them "
        "the split 'train'"
    )


def single_class(names: Sequence[str], splits: NDArray[np.int64]) -> str:
    """Return which class is the only one."""
    used = np.flatnonzero(splits.sum(axis=1))
    if len(used) != 1:
        return ""
    return (
        f"all {int(splits.sum()):,} labelled nodes are of one class, "
        f"{listed([repr(names[int(used[0])])])}: every model is right; give --label another column"
    )


def without_edges(edges: int) -> str:
    """Return that a graph has no edges."""
    if edges:
        return ""
    return "the graph has no edges: every node is read alone; check the edge table"


def unread_texts(texts: Iterable[str], tokenizer: Path) -> str:
    """Return how much of some texts an encoder does not read as words.

    A letter is unread if it belongs to an unknown token, or is a token of its own: an encoder that
    spells a language was not trained on it. Of ideographs, which are words, unknown ones count.

    Parameters
    ----------
    texts : the first `SAMPLE` are read
    tokenizer : file `tokenizer.json` of the encoder
    """
    reader = _tokenizer(tokenizer)
    unknown = getattr(reader.model, "unk_token", None)
    letters = unread = 0
    for text in islice(texts, SAMPLE):
        # Half a character, which a text may hold, is no input of a tokenizer.
        part = text[:_CHARACTERS].encode("utf-8", "replace").decode()
        tokens = reader.encode(part, add_special_tokens=False)
        letters += sum(map(str.isalpha, part))
        spans = zip(tokens.tokens, tokens.offsets, strict=True)
        spelled = (
            range(start, end)
            for token, (start, end) in spans
            if token == unknown or (end - start == 1 and not _is_ideograph(part[start]))
        )
        unread += len({i for span in spelled for i in span if part[i].isalpha()})
    if unread <= _MAX_UNREAD * letters:
        return ""
    return (
        f"the encoder does not know {unread / letters:.0%} of the letters of a sample of the "
        "texts, or spells words of them letter by letter: it was not trained on their language; "
        "set encoder to a model that reads it, such as "
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
    )


@lru_cache(maxsize=1)
def _tokenizer(path: Path) -> "Tokenizer":
    """Load the tokenizer in a file once: loading it takes longer than reading the texts."""
    # The library of the file itself: transformers would import torch.
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(path))
    reader.no_truncation()
    reader.no_padding()
    return reader


def _is_ideograph(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in _IDEOGRAPHS)
