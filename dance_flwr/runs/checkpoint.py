"""The state of a run after a complete round, in one file: `--resume` continues from it.

`checkpoint.safetensors` holds models and the server's optimiser as tensors and everything else as
text. It exists from the start of a run to its end, whenever a process dies: a new one takes the
name only when it is complete, and meanwhile the previous one has another name. The checkpoint
holds the best model only if that is the last one. Otherwise the best model is in
`model.safetensors`, which is written after the checkpoint that names it.
An HMAC with the server's key proves that this server wrote it.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dance_flwr.config.paths import HISTORY, MODEL, state_root
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.disk import PRIVATE_FILE, atomic_file, atomic_path, private_lock
from dance_flwr.errors import ConfigError, ResumeError
from dance_flwr.federation.wire.keys import SCHEMA_COMMON
from dance_flwr.fingerprint import PROTOCOL, model_fingerprint
from dance_flwr.methods import code_of
from dance_flwr.runs.result import Round

if TYPE_CHECKING:  # reading the status of a run needs no torch
    from torch import Tensor

    from dance_flwr.data.prepare import Prepared

CHECKPOINT, BEFORE = "checkpoint.safetensors", "checkpoint-before.safetensors"
RESTART = "start it again without resume"
_ROWS = "history"  # the rows as bytes, beside the tensors "<group>/<name>"
_DIGEST, _KEYED = "sha256", "hmac-sha256"

# Fields of a client's description that may change. Why (decision 20): a folder that is prepared
# again has another salt and hash; on another device of a node a vote may differ.
_MAY_CHANGE = ("device", "data_sha256", "reading_votes")

# What reading a checkpoint raises that is damaged or of another version.
_UNREADABLE = (
    *(SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError),
    ConfigError,
)

Groups = dict[str, dict[str, NDArray[Any]]]


@dataclass
class Checkpoint:
    """All that a server needs to continue a run.

    Attributes
    ----------
    run : name of the run, also of its folder at each client; round : completed rounds
    protocol : of the release that wrote it
    provenance : of the code that computed its rounds, several if it changed between rounds
    data : hash of the partition and of what all clients have in common; described : client -> hash
        of its description of its data, for the clients that took part in a start; partition : name
        of the partition's folder, empty if clients bring their own data; all empty before `agree`
    best_round : of the best model so far; seconds : wall clock of its rounds so far
    numbers : scalars of the `Round` by name, and the temperature of the result once it is fitted
    arrays : of the `Round`, group -> name -> array
    history : the rows of `history.jsonl` as text; waiting : that of the last round while its
        validation is to come, else ""; messages : rows of the message log
    sizes : "nodes_per_client" and "encoder_tokens" by client, for the clients that took part in a
        start; None = the sum of all, if only that is known; total_weight : then, of all clients
    reading : keys that the clients voted on, and the votes; empty without a vote
    traffic : model bytes (down, up) per client that belong to no round yet
    client_seconds : client -> seconds by phase of the run so far; empty if only sums are known
    resumed_after : the last complete round before each stop
    repeats : rounds that were repeated with new noise, under differential privacy
    best_model : fingerprint of the best model so far, "" before the first validation
    """

    run: str
    config: RunConfig
    protocol: int = PROTOCOL
    provenance: list[str] = field(default_factory=list)
    round: int = 0
    data: str = ""
    described: dict[int, str] = field(default_factory=dict)
    partition: str = ""
    best_round: int = 0
    seconds: float = 0.0
    numbers: dict[str, float] = field(default_factory=dict)
    arrays: Groups = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    waiting: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, dict[int | None, int]] = field(default_factory=dict)
    total_weight: int = 0
    reading: dict[str, Any] = field(default_factory=dict)
    traffic: list[dict[int, int]] = field(default_factory=list)
    client_seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    resumed_after: list[int] = field(default_factory=list)
    repeats: int = 0
    best_model: str = ""

    @classmethod
    def load(cls, folder: Path, *, own: bool = True) -> "Checkpoint":
        """Read the checkpoint of a run's folder; `own`: only if this server and release wrote it.

        Raises
        ------
        ResumeError : there is none, it cannot be read, it was altered, or another server wrote it
        """
        path, protocol = folder / CHECKPOINT, PROTOCOL
        # A server that died between the two renames has left only the predecessor.
        path = path if path.is_file() else folder / BEFORE
        if not path.is_file():
            raise ResumeError(
                f"{folder}: expected {CHECKPOINT} of an interrupted run, found none; name the "
                f"folder that holds {HISTORY}, or {RESTART}"
            )
        try:
            with safe_open(path, "np") as file:
                texts = dict(file.metadata() or {})
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no mapping
            stored, keyed = (texts.pop(name, "") for name in (_DIGEST, _KEYED))
            # Why (decision 20): a flipped bit would resume as another run.
            if stored != (digest := _digest(tensors, texts)):
                raise ValueError("other content than it was written with; it is damaged")
            facts = json.loads(texts["facts"])
            protocol = facts["protocol"]
            if own and protocol != PROTOCOL:
                raise other_protocol(path, protocol)
            if own and not is_own(digest, keyed):
                raise ResumeError(
                    f"{path}: expected a checkpoint of this server, found one altered, or with the "
                    f"key of another server; copy {key_path()} of that machine, or {RESTART}"
                )
            rows = tensors.pop(_ROWS).tobytes().decode()
            arrays: Groups = {}
            for key in json.loads(texts["order"]):
                group, _, name = key.partition("/")
                arrays.setdefault(group, {})[name] = tensors[key]
            facts["traffic"] = [{int(k): n for k, n in way.items()} for way in facts["traffic"]]
            for name in ("client_seconds", "described"):
                facts[name] = {int(k): value for k, value in facts.get(name, {}).items()}
            facts["sizes"] = {
                name: {None if key == "null" else int(key): size for key, size in by_client.items()}
                for name, by_client in facts["sizes"].items()
            }
            config = parse(json.loads(texts["config"]))
            return cls(config=config, arrays=arrays, history=rows.splitlines(), **facts)
        except _UNREADABLE as error:
            # A checkpoint of another release need not be damaged.
            if protocol != PROTOCOL:
                raise other_protocol(path, protocol) from None
            raise ResumeError(
                f"{path}: expected a checkpoint of this version, found {error}; {RESTART}"
            ) from None

    def save(self, folder: Path, *, lasting: bool = False) -> None:
        """Write the checkpoint; a crash at any moment leaves the previous one.

        Parameters
        ----------
        lasting : whether a power failure leaves this one
        """
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
        digest = _digest(tensors, metadata)
        metadata |= {_DIGEST: digest, _KEYED: keyed_digest(digest)}
        # Why (decision 10): renaming the predecessor is faster than replacing it, which waits for
        # the disk. A power failure may cost this round; a dying process does not.
        with atomic_path(folder / CHECKPOINT, keep=folder / BEFORE, lasting=lasting) as draft:
            draft.write_bytes(save(tensors, metadata))
        (folder / BEFORE).unlink(missing_ok=True)

    def stamp(self) -> None:
        """Add the provenance of the running code, if it is new."""
        if (code := code_of(self.config.method)) not in self.provenance:
            self.provenance.append(code)

    def agree(self, manifest: Mapping[str, Any] | None, described: Mapping[int, Any]) -> None:
        """Store hashes of the data of a new run, or check that a resumed run has the same data.

        A client that is absent now is compared when it is back, and one that was absent before is
        compared from now on. Under masks no client is absent: all describe their data at every
        start, so that sums stay over the same clients.

        Parameters
        ----------
        manifest : of the partition, None if clients bring their own data
        described : client -> its description of its data, `Schema`; fields of `_MAY_CHANGE` are
            not compared

        Raises
        ------
        ResumeError : the data has changed; names the clients
        """
        facts = {client: asdict(schema) for client, schema in described.items()}
        now = {client: _hash(values, _MAY_CHANGE) for client, values in facts.items()}
        before = self.described
        if changed := [k for k in sorted(now) if before.get(k, now[k]) != now[k]]:
            hashes = ({k: each[k] for k in changed} for each in (before, now))
            raise self._other_data(*(f"that of clients {each}" for each in hashes))
        # Also the same for clients that never took part in the same start.
        common = {key: next(iter(facts.values()))[key] for key in SCHEMA_COMMON}
        data = _hash({"partition": manifest and manifest["sha256"], **common})
        if self.data and self.data != data:
            raise self._other_data(self.data, data)
        self.data, self.described = data, dict(sorted((before | now).items()))

    def prepare_partition(self, log: Callable[[str], None] = lambda line: None) -> "Prepared":
        """Return the partition of the run; nothing is prepared if the data has changed."""
        from dance_flwr.data.prepare import partition_folder, prepare

        if self.partition:
            name = partition_folder(self.config).name
            if name != self.partition:
                raise self._other_data(self.partition, name)
        partition = prepare(self.config, log)
        self.partition = partition.folder.name
        return partition

    @property
    def waiting_row(self) -> Round | None:
        """The last round while its validation is to come."""
        return Round.of(json.loads(self.waiting)) if self.waiting else None

    def deployed(self) -> "dict[str, Tensor]":
        """Return the deployed model of the last round, empty before round 1."""
        import torch

        arrays = self.arrays.get("deployed", self.arrays.get("model", {}))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def best(self, folder: Path) -> "dict[str, Tensor]":
        """Return the best model so far, empty before the first validation."""
        if not self.best_round:
            return {}
        # The model's file is written after the checkpoint, so it may be missing.
        if self.best_round == self.round:
            return self.deployed()
        path, found = folder / MODEL, "none"
        if path.is_file():
            try:
                with safe_open(path, "pt") as file:
                    state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
                found = model_fingerprint(state)
            except SafetensorError as error:
                found = str(error)
            if found == self.best_model:
                return state
        raise ResumeError(
            f"{path}: expected model {self.best_model} of round {self.best_round}, found {found}; "
            f"{RESTART}"
        )

    def _other_data(self, expected: str, found: str) -> ResumeError:
        return ResumeError(
            f"run {self.run}: expected the data and the partition that it started with, "
            f"{expected}, found {found}; restore the data, or {RESTART}"
        )


def other_protocol(place: Path, found: int) -> ResumeError:
    """Return the error of a checkpoint that a release with another PROTOCOL wrote."""
    return ResumeError(
        f"{place}: expected a checkpoint of protocol {PROTOCOL}, found one of {found}; install the "
        f"release that wrote it, or {RESTART}"
    )


def _hash(values: Mapping[str, Any], without: Collection[str] = ()) -> str:
    included = {key: value for key, value in values.items() if key not in without}
    return hashlib.sha256(json.dumps(included, sort_keys=True).encode()).hexdigest()[:16]


def _digest(tensors: Mapping[str, NDArray[Any]], texts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(sorted(texts.items()))).encode())
    for name, array in sorted(tensors.items()):
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@lru_cache(maxsize=4)
def _config_text(config: RunConfig) -> str:
    return json.dumps(flatten(config))


def key_path() -> Path:
    """Return the file of the server's key, which belongs to this user on this machine."""
    return state_root() / "checkpoint.key"


def keyed_digest(digest: str) -> str:
    """Return the HMAC-SHA256 of a digest in hex; a missing key is created."""
    path = key_path()
    if not path.is_file():
        with private_lock(path.with_name(f".{path.name}.lock")):  # two servers may start at once
            if not path.is_file():
                with atomic_file(path, lasting=True) as file:
                    file.write(os.urandom(hashlib.sha256().digest_size))
    return _hmac(path, digest)


def is_own(digest: str, keyed: str) -> bool:
    """Whether this server's key made a keyed digest."""
    path = key_path()
    return path.is_file() and hmac.compare_digest(keyed.encode(), _hmac(path, digest).encode())


def _hmac(path: Path, digest: str) -> str:
    stat = path.stat()
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o777 & ~PRIVATE_FILE:
        raise ResumeError(
            f"{path}: expected a file of this user alone, mode 600, found mode "
            f"{stat.st_mode & 0o777:o} of user {stat.st_uid}; correct it, or remove it, after "
            "which no interrupted run can be resumed"
        )
    return hmac.new(path.read_bytes(), digest.encode(), "sha256").hexdigest()
