"""The models that a client trains for itself after a run: how they are stored, their settings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import atomic_path
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.sampling_config import SamplingConfig

OWN = "own.safetensors"
_FACTS = "facts"
# Why fixed (decision 30): the nodes that choose between the kinds would favour a model whose number
# of rounds they had chosen, too.
TUNING_ROUNDS = 10
# Why (decision 30): epochs over more labelled nodes than this would cost more than the rounds.
_MAX_LABELLED, _BATCH_NODES = 4096, 1024


@dataclass(frozen=True)
class OwnModel:
    """The models of a client's own, which of them it deploys, and with which share.

    Attributes
    ----------
    states : kind -> state dict; "alone" is of the plain network, "tuned" of the run's method
    kind : of the one that is deployed with the global model
    share : lambda; 0 until it is chosen
    """

    states: Mapping[str, Mapping[str, Tensor]]
    kind: str
    share: float = 0.0

    @property
    def facts(self) -> dict[str, str | float]:
        """Fingerprint, kind and share of the deployed one."""
        model = model_fingerprint(self.states[self.kind])
        return {"model": model, "kind": self.kind, "share": self.share}

    @property
    def deployed(self) -> "OwnModel":
        """The one that is deployed, and no other."""
        return replace(self, states={self.kind: self.states[self.kind]})

    def save(self, path: Path, made_of: str = "") -> None:
        """Write models, kind and share to one file, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{kind}/{name}": tensor.contiguous().cpu()
            for kind, state in self.states.items()
            for name, tensor in state.items()
        }
        with atomic_path(path) as draft:
            # One entry, as safetensors writes several in any order, and the file is sealed.
            facts = json.dumps({"kind": self.kind, "share": self.share, "made-of": made_of})
            save_file(tensors, draft, {_FACTS: facts})

    @classmethod
    def read(cls, path: Path, made_of: str = "") -> "OwnModel | None":
        """Return the models in this file; None if there is none, or one of something else."""
        if not path.is_file():
            return None
        states: dict[str, dict[str, Tensor]] = {}
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads((file.metadata() or {})[_FACTS])
                if made_of and facts["made-of"] != made_of:
                    return None
                for key in file.keys():  # noqa: SIM118  # no mapping
                    kind, _, name = key.partition("/")
                    states.setdefault(kind, {})[name] = file.get_tensor(key)
            kind, share = facts["kind"], facts["share"]
            if kind not in states or not states.keys() <= {*PERSONAL["auto"]}:
                raise ValueError(f"models {sorted(states)!r:.80} of which {kind!r:.40} is deployed")
            if type(share) is not float or not 0 <= share <= 1:
                raise ValueError(f"a share of {share!r:.40}")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: expected the client's own model, found {error}; copy the client's folder "
                "again, or run again"
            ) from None
        return cls(states, kind, share)


def own_path(client_folder: Path, run: str) -> Path:
    """Return the file of a run's own models at a client, sealed with the run's evidence."""
    return RunFolder(client_folder, run).evidence_folder / OWN


def tuning_run(run: str) -> str:
    """Return the run under which a client tunes the model of a run, so that neither reads the
    other's state.
    """
    return f"{run}-tuned"


def deployed_own(client_folder: Path, run: str, config: RunConfig) -> OwnModel | None:
    """Return the own models that a client has after a run; None of a run without personal ones."""
    if not PERSONAL[config.personal]:
        return None
    path = own_path(client_folder, run)
    if (model := OwnModel.read(path)) is None:
        raise DataError(
            f"{path}: expected the client's own model, found none; copy the client's folder again, "
            "or run again"
        )
    return model


def kind_config(config: RunConfig, kind: str) -> RunConfig:
    """Return the settings of an own model: the run's, with the plain network or fewer rounds."""
    if kind == ALONE:
        return replace(config, method="local-only")
    return replace(config, personal="off", rounds=TUNING_ROUNDS)


def training_config(config: RunConfig, kind: str, data: ClientData) -> RunConfig:
    """Return `kind_config` for training, in batches where the client has many labels."""
    labelled = int((data.train_labels >= 0).sum())
    sampling = SamplingConfig.of(config)
    if kind == ALONE and labelled > _MAX_LABELLED and not sampling.batch_nodes:
        sampling = replace(sampling, batch_nodes=_BATCH_NODES)
    sections = tuple(sampling if type(s) is SamplingConfig else s for s in config.sections)
    return replace(kind_config(config, kind), sections=sections)


def made_of(config: RunConfig, data: ClientData, model_id: str) -> str:
    """Return a digest of all that the own models follow from, in whatever folder a run lies."""
    settings = {key: value for key, value in flatten(config).items() if key not in FREE}
    facts = [settings, data.card.partition_sha256, data.encoder_sha256, model_id]
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
