"""The state of a run after a whole round, in one file: what `--resume` goes on from.

`checkpoint.safetensors` holds models and the server's optimiser as tensors, everything else as text
beside them. It is there from the start of a run to its end, whenever a process dies. A new one
takes its name only when it is whole; the one before keeps a name of its own for that moment, as
replacing a file would wait for the disk. The best model is in it only where it is the last one;
else it is in `model.safetensors`, which is written after the checkpoint that names it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dance_flwr.config.paths import ERROR, HISTORY, MODEL, RESULT, SETTINGS
from dance_flwr.config.text import to_toml
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.errors import ConfigError, ResumeError, UserError
from dance_flwr.fingerprint import code_fingerprint

if TYPE_CHECKING:  # whoever only asks how far a run is needs no torch
    from torch import Tensor

    from dance_flwr.data.prepare import Prepared

CHECKPOINT, BEFORE = "checkpoint.safetensors", "checkpoint-before.safetensors"
# Where and how patiently a run is made, never what it computes: these may change when it goes on.
FREE = ("data-root", "out", "resume", "device", "torch-threads", "round-timeout", "node-timeout")
_ANEW = "start it anew without resume"
_ROWS = "history"  # the rows as bytes, beside the tensors "<group>/<name>"

Groups = dict[str, dict[str, NDArray[Any]]]


@dataclass
class Checkpoint:
    """All that a server must know to go on with a run.

    Attributes
    ----------
    run : name of the run, which names its folder at each client; round : rounds that are over
    code : fingerprint of the code that made it
    data : hash of the partition and of what clients said of their data; partition : name of the
        partition's folder, empty where clients bring their own data; both empty before `agree`
    best_round : of the model that is kept so far; seconds : that the run has taken
    numbers : the strategy's scalars by name; arrays : its arrays, group -> name -> array
    history : the rows of `history.jsonl` as text; ledger : its rows
    sizes, total_weight : of the federation, asked for once
    traffic : model bytes (down, up) per client that belong to no round yet
    resumed_after : the last whole round of every stop
    repeats : rounds that were asked again and drew other noise for differential privacy, 0 without
    """

    run: str
    config: RunConfig
    code: str = field(default_factory=code_fingerprint)
    round: int = 0
    data: str = ""
    partition: str = ""
    best_round: int = 0
    seconds: float = 0.0
    numbers: dict[str, float] = field(default_factory=dict)
    arrays: Groups = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    total_weight: int = 0
    traffic: list[dict[int, int]] = field(default_factory=list)
    resumed_after: list[int] = field(default_factory=list)
    repeats: int = 0

    @classmethod
    def load(cls, folder: Path) -> "Checkpoint":
        """Read the checkpoint of a run's folder.

        Raises
        ------
        ResumeError : there is none, or it cannot be read
        """
        path = folder / CHECKPOINT
        path = path if path.is_file() else folder / BEFORE
        if not path.is_file():
            raise ResumeError(
                f"{folder}: expected {CHECKPOINT} of a run that was interrupted, found none; give the folder that "
                f"holds {HISTORY}, or {_ANEW}"
            )
        try:
            with safe_open(path, "np") as file:
                texts = file.metadata()
                arrays: Groups = {}
                for key in json.loads(texts["order"]):
                    group, _, name = key.partition("/")
                    arrays.setdefault(group, {})[name] = file.get_tensor(key)
                rows = file.get_tensor(_ROWS).tobytes().decode()
            facts = json.loads(texts["facts"])
            facts["traffic"] = [
                {int(client): count for client, count in way.items()} for way in facts["traffic"]
            ]
            config = parse(json.loads(texts["config"]))
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise ResumeError(
                f"{path}: expected a checkpoint of this version, found {error}; {_ANEW}"
            ) from None
        return cls(config=config, arrays=arrays, history=rows.splitlines(), **facts)

    def save(self, folder: Path) -> None:
        """Write the checkpoint; a crash at any instant leaves the one before."""
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("config", "arrays", "history"):
            facts.pop(name)
        tensors = {
            f"{group}/{name}": array
            for group, part in self.arrays.items()
            for name, array in part.items()
        }
        metadata = {
            "order": json.dumps(list(tensors)),
            "facts": json.dumps(facts),
            "config": _config_text(self.config),
        }
        tensors[_ROWS] = np.frombuffer("\n".join(self.history).encode(), np.uint8)
        partial = folder / (CHECKPOINT + ".partial")
        save_file(tensors, partial, metadata)
        current, before = folder / CHECKPOINT, folder / BEFORE
        if current.is_file():
            current.replace(before)
        partial.replace(current)
        before.unlink(missing_ok=True)

    def agree(self, manifest: Mapping[str, Any] | None, described: Sequence[Any]) -> None:
        """Take note of the data of a new run; check that it is still the same in a run that goes
        on.

        Parameters
        ----------
        manifest : of the partition, None where clients bring their own data
        described : what each client said of its data, dataclasses with a `device`, which may change

        Raises
        ------
        ResumeError : it is not the same
        """
        said = [
            {key: value for key, value in asdict(each).items() if key != "device"}
            for each in described
        ]
        text = json.dumps([manifest and manifest["sha256"], said], sort_keys=True)
        found = hashlib.sha256(text.encode()).hexdigest()[:16]
        if self.data and self.data != found:
            raise self._other_data(self.data, found)
        self.data = found

    def prepared(self, say: Callable[[str], None] = lambda line: None) -> "Prepared":
        """Return the partition of the run; nothing new is made where the data has changed.

        Raises
        ------
        ResumeError : the data or the encoder has changed
        """
        from dance_flwr.data.prepare import partition_folder, prepare

        if self.partition:
            name = partition_folder(self.config).name
            if name != self.partition:
                raise self._other_data(self.partition, name)
        found = prepare(self.config, say)
        self.partition = found.folder.name
        return found

    def best(self, folder: Path) -> "dict[str, Tensor]":
        """Return the best model so far, empty where none was validated.

        Raises
        ------
        ResumeError : `model.safetensors` is missing, or of another round
        """
        if not self.best_round:
            return {}
        if self.best_round == self.round:
            import torch

            kept = self.arrays.get("kept", self.arrays["model"])
            return {name: torch.from_numpy(array) for name, array in kept.items()}
        path, found = folder / MODEL, "none"
        if path.is_file():
            with safe_open(path, "pt") as file:
                found = (file.metadata() or {}).get("round", "none")
                if found == str(self.best_round):
                    return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        raise ResumeError(
            f"{path}: expected the model of round {self.best_round}, found {found}; {_ANEW}"
        )

    def _other_data(self, expected: str, found: str) -> ResumeError:
        return ResumeError(
            f"run {self.run}: expected the data and the partition that it began with, {expected}, found {found}; "
            f"put the data back, or {_ANEW}"
        )


@lru_cache(maxsize=4)
def _config_text(config: RunConfig) -> str:
    return json.dumps(flatten(config))


def resumable(folder: Path) -> Checkpoint:
    """Return the checkpoint of a run that was interrupted.

    Raises
    ------
    ResumeError : there is none, the run is finished, or other code made it
    """
    if (folder / RESULT).is_file():
        raise ResumeError(
            f"{folder}: expected a run that was interrupted, found {RESULT} of a finished one; read it"
        )
    point = Checkpoint.load(folder)
    if point.code != code_fingerprint():
        raise ResumeError(
            f"{folder}: expected a checkpoint of this code, {code_fingerprint()}, found one of {point.code}; go back "
            f"to the version that made it, or {_ANEW}"
        )
    return point


def begin(name: str, config: RunConfig, folder: Path) -> Checkpoint:
    """Return where a run begins: round 0 of a new one called `name`, or the checkpoint in `folder`
    if it resumes.

    What a run that stopped here left for a resumption is removed by a new one.

    The configuration of what is returned is that of the run, with this machine's places in it and
    without `resume`.

    Raises
    ------
    ResumeError : it cannot be resumed, or its configuration was another
    """
    own = replace(config, resume=False)
    (folder / ERROR).unlink(missing_ok=True)
    if not config.resume:
        forget(folder)
        return Checkpoint(name, own)
    point = resumable(folder)
    kept, given = flatten(point.config), flatten(own)
    changed = [key for key in kept if key not in FREE and kept[key] != given[key]]
    if changed:
        other = [f"{key} = {given[key]!r} instead of {kept[key]!r}" for key in changed]
        raise ResumeError(
            f"{folder}: expected the configuration that the run began with, found {', '.join(other)}; pass "
            f"--run-config {folder / SETTINGS}"
        )
    point.config = own
    return point


def write_settings(point: Checkpoint, folder: Path) -> None:
    """Leave the configuration with which Flower's own command goes on with this run."""
    settings = replace(point.config, out=str(folder), resume=True)
    (folder / SETTINGS).write_text(to_toml(settings), encoding="utf-8")


def cut_back(point: Checkpoint, folder: Path) -> None:
    """Leave those rows in `history.jsonl` that the checkpoint knows, and no error of the last
    attempt.
    """
    partial = folder / (HISTORY + ".partial")
    partial.write_text("".join(line + "\n" for line in point.history), encoding="utf-8")
    partial.replace(folder / HISTORY)
    (folder / ERROR).unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove what only a run that is not finished needs."""
    for name in (CHECKPOINT, BEFORE, SETTINGS):
        (folder / name).unlink(missing_ok=True)


def how_to_resume(folder: Path) -> str:
    """Return one line that says how to go on with the run in `folder`; empty where there is nothing
    to go on from.
    """
    try:
        point = resumable(folder)
    except ResumeError:
        return ""
    command = f"dance-flwr run --resume {folder}"
    if not point.partition:
        command = f"flwr run APP SUPERLINK --run-config {folder / SETTINGS}"
    return f"{point.round} of {point.config.rounds} rounds are kept; to go on: {command}"


@contextmanager
def telling_how_to_resume(folder: Path) -> Iterator[None]:
    """Add the command that goes on with the run to the message of whatever ends it."""
    try:
        yield
    except ResumeError:
        raise
    except UserError as error:
        hint = _unsaid(folder)
        if hint:
            error.args = (f"{error}; {hint}", *error.args[1:])
        raise
    except Exception as error:
        hint = _unsaid(folder)
        if hint:
            error.add_note(hint)
        raise


def _unsaid(folder: Path) -> str:
    """Return how to resume, empty where the server has had its say already."""
    return "" if (folder / ERROR).is_file() else how_to_resume(folder)
