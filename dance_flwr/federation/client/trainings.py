"""Count how often a client has trained, in a file of its folder.

The server numbers the rounds of a run and names the run: one that lies asks for round 1 without
end. A client whose node bounds the rounds or the trainings writes each down before it begins. A
round that is asked again from the same model is a repetition: an answer was lost, or the run was
interrupted and goes on from its last complete round. There may be as many of these as rounds.
"""

import hashlib
import json
from math import inf
from pathlib import Path
from typing import Any

from flwr.app import Message

from dance_flwr.disk import atomic_file, private_lock
from dance_flwr.errors import UserError, disk_of
from dance_flwr.federation.node_config import NodeTerms
from dance_flwr.federation.wire import keys, messages

TRAININGS = "training-counts.json"
_TRAININGS, _REPEATED = "trainings", "repeated"
_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds
_Runs = dict[str, dict[str, Any]]


def count_training(message: Message, folder: Path, terms: NodeTerms) -> None:
    """Write down that a run trains here once more; nothing where the node bounds neither.

    The file is on the device when this returns. Processes take turns.

    Parameters
    ----------
    message : the request, whose run has a plain name
    folder : of the client

    Raises
    ------
    UserError : it is more than the node allows, and nothing was written; or the file is damaged
    """
    # Nothing is bounded, so there is nothing to count.
    if terms.max_rounds == terms.max_trainings == inf:
        return
    run, path = str(messages.config_of(message)[keys.RUN]), folder / TRAININGS
    # Each message has a process of its own, and two may train at once.
    with (
        disk_of(folder),
        private_lock(folder / f".{TRAININGS}.lock", timeout=_SECONDS),
    ):
        runs = _read(path)
        counts = runs.setdefault(run, {_TRAININGS: [], _REPEATED: 0})
        # The same round from the same model: an answer was lost, or the run was resumed.
        if (digest := _digest(message)) in counts[_TRAININGS]:
            counts[_REPEATED] += 1
        else:
            counts[_TRAININGS].append(digest)
        # Refused before it is written, as it does not take place.
        _refuse(run, runs, terms)
        # On the device before it begins: the count outlives a kill.
        with atomic_file(path, lasting=True) as file:
            file.write((json.dumps({"runs": runs}, indent=1) + "\n").encode())


def _refuse(run: str, runs: _Runs, terms: NodeTerms) -> None:
    """Refuse a training with which the account is beyond the terms."""
    once, repeated = len(runs[run][_TRAININGS]), runs[run][_REPEATED]
    every = sum(len(counts[_TRAININGS]) + counts[_REPEATED] for counts in runs.values())
    # Repetitions have a bound of their own, or a server could ask for one round without end.
    for term, maximum, what, count in (
        (keys.MAX_ROUNDS, terms.max_rounds, f"trainings in run {run}", once),
        (keys.MAX_ROUNDS, terms.max_rounds, f"repeated trainings in run {run}", repeated),
        (keys.MAX_TRAININGS, terms.max_trainings, "trainings in all runs", every),
    ):
        if count > maximum:
            raise UserError(
                f"{term}: expected at most {maximum:g} {what}, found {count} with this one; this "
                "node does not take part. An operator who agrees to more raises it in "
                "--node-config"
            )


def _digest(message: Message) -> str:
    """Return what tells one training of a run from another: the round and its model."""
    digest = hashlib.sha256(repr(messages.config_of(message).get(keys.ROUND)).encode())
    for name, array in messages.arrays_in(message).items():
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.data)
    # 128 bits: a server that looks for two models with one digest needs 2^64 tries.
    return digest.hexdigest()[:32]


def _read(path: Path) -> _Runs:
    try:
        runs = json.loads(path.read_text("utf-8"))["runs"]
        return {
            str(run): {
                _TRAININGS: list(map(str, counts[_TRAININGS])),
                _REPEATED: int(counts[_REPEATED]),
            }
            for run, counts in runs.items()
        }
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: expected how often runs have trained here, found a damaged file ({error}); "
            "restore it from a copy, or delete it to count from nothing"
        ) from None
