"""What a run read of a client's texts: the chunks of its evidence.

They are noted in the client's folder of the run, one small file per refresh, so that a round that
is repeated is counted once. Evidence packs that a run keeps are such notes already. The server gets
sums of them alone, at the end of the run.
"""

import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dance_flwr.disk import read_npz, write_npz
from dance_flwr.metrics import Tokens

LOG = logging.getLogger("flwr")
_FOLDER = "read"  # in a client's folder of a run
_PACKS = "evidence/round-*.npz"  # whose array `chunks` is what a refresh read


def note_evidence(folder: Path, round_: int, chunks: NDArray[np.int64]) -> None:
    """Note the chunks that a refresh read as evidence; noting a round again replaces it.

    A refresh whose packs are kept needs no note.

    Parameters
    ----------
    folder : the client's folder of the run, `run_folder`
    chunks : [E] rows of the client's text bank, one entry per condensed node and chunk
    """
    path = folder / _FOLDER / f"round-{round_:05d}.npz"
    write_npz(path, {"chunks": np.asarray(chunks, np.int64)})


def usage_of(folders: Sequence[Path], tokens: NDArray[np.int32]) -> Tokens:
    """Return the counts of evidence of a run, by its notes; all 0 if there are none.

    A damaged note is left out with a warning: it must not cost a finished run.

    Parameters
    ----------
    folders : of the run at the client, `run_folder`
    tokens : [R] tokens of every chunk of the client's text bank
    """
    seen = np.zeros(len(tokens), np.bool_)
    chunks = total = 0
    notes = (f.glob(pattern) for f in folders for pattern in (f"{_FOLDER}/*.npz", _PACKS))
    for path in sorted(chain.from_iterable(notes)):
        read = (read_npz(path) or {}).get("chunks")
        if read is not None and (not len(read) or 0 <= read.min() <= read.max() < len(tokens)):
            seen[read] = True
            chunks, total = chunks + len(read), total + int(tokens[read].sum())
        else:
            LOG.warning("%s: expected what a run read, found a damaged file; not counted", path)
    return Tokens(chunks, total, int(seen.sum()), int(tokens[seen].sum()))
