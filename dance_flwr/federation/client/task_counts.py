"""Count how often a client has trained and validated, in a file of its ledgers.

The server numbers the rounds of a run and names the run: one that lies asks for round 1 without
end, or has crafted models validated until it knows single nodes. A client whose node bounds the
rounds or the trainings writes each task down before it begins. A round that is asked again with the
same model is a repetition: an answer was lost, or the run was interrupted and goes on from its last
complete round. There may be as many of these as rounds.

A run has one validation more than rounds, that of its final model, which is validated twice where
models are personal. Where every client trains in every round, a client also validates at most one
model more than it has trained.
"""

import hashlib
import json
from pathlib import Path

from flwr.app import Message

from dance_flwr.disk import atomic_file, private_lock
from dance_flwr.errors import UserError, disk_of
from dance_flwr.federation.node_config import NodeTerms
from dance_flwr.federation.wire import keys, messages

TRAININGS = "training-counts.json"
_TRAININGS, _VALIDATIONS = "trainings", "validations"
_KIND = {keys.TRAIN: _TRAININGS, keys.EVALUATE: _VALIDATIONS}
_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds
_Counts = dict[str, dict[str, int]]  # kind -> digest of a task -> how often it was asked


def count_task(
    message: Message, task: str, folder: Path, terms: NodeTerms, fraction: float
) -> None:
    """Write down that a run trains or validates here once more; nothing without bounds.

    The file is on the device when this returns. Processes take turns.

    Raises
    ------
    UserError : it is more than the node allows, and nothing was written; or the file is damaged
    """
    # Nothing is bounded, so there is nothing to count.
    if task not in _KIND or not terms.counted:
        return
    run, path = str(messages.config_of(message)[keys.RUN]), folder / TRAININGS
    # Each message has a process of its own, and two may train at once.
    with disk_of(folder), private_lock(folder / f".{TRAININGS}.lock", timeout=_SECONDS):
        runs = _read(path)
        counts = runs.setdefault(run, {_TRAININGS: {}, _VALIDATIONS: {}})
        tasks = counts[_KIND[task]]
        digest = _digest(message)
        tasks[digest] = tasks.get(digest, 0) + 1
        # Refused before it is written, as it does not take place.
        _refuse(run, runs, _KIND[task], terms, fraction)
        # On the device before it begins: the count outlives a kill.
        with atomic_file(path, lasting=True) as file:
            file.write((json.dumps({"runs": runs}, indent=1) + "\n").encode())


def _refuse(
    run: str, runs: dict[str, _Counts], kind: str, terms: NodeTerms, fraction: float
) -> None:
    """Refuse a task with which the account is beyond the terms."""
    tasks, extra = runs[run][kind], int(kind == _VALIDATIONS)
    rounds, trained = terms.max_rounds + extra, len(runs[run][_TRAININGS])
    repeated = sum(tasks.values()) - len(tasks)
    every = sum(sum(counts[kind].values()) for counts in runs.values())
    # Each run has a final validation, and before it one of mixtures where models are personal.
    allowed = terms.max_trainings + 2 * extra * len(runs)
    checks = [
        # Repetitions have a bound of their own, or a server could ask for one round without end.
        (keys.MAX_ROUNDS, rounds, f"{kind} in run {run}", len(tasks)),
        (keys.MAX_ROUNDS, rounds, f"repeated {kind} in run {run}", repeated),
        (keys.MAX_TRAININGS, allowed, f"{kind} in all runs", every),
    ]
    if extra and fraction == 1:
        what = f"validations in run {run}, one more than trainings"
        checks.append((keys.MAX_ROUNDS, trained + 1, what, len(tasks)))
    for term, maximum, what, count in checks:
        if count > maximum:
            raise UserError(
                f"{term}: expected at most {maximum:g} {what}, found {count} with this one; this "
                "node does not take part. An operator who agrees to more raises it in --node-config"
            )


def _digest(message: Message) -> str:
    """Return what tells one task of a run from another: the round and its model."""
    digest = hashlib.sha256(repr(messages.config_of(message).get(keys.ROUND)).encode())
    for name, array in messages.arrays_in(message).items():
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.data)
    # 128 bits: a server that looks for two models with one digest needs 2^64 tries.
    return digest.hexdigest()[:32]


def _read(path: Path) -> dict[str, _Counts]:
    try:
        runs = json.loads(path.read_text("utf-8"))["runs"]
        return {
            str(run): {
                kind: {str(digest): int(count) for digest, count in counts[kind].items()}
                for kind in (_TRAININGS, _VALIDATIONS)
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
