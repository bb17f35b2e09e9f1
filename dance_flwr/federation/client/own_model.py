"""The client's own model of a run, as it is stored, and its configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import FREE, RunConfig, flatten
from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import atomic_path
from dance_flwr.errors import DataError
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods.sampling_config import SamplingConfig

OWN = "own.safetensors"
_FACTS = "facts"
ALONE = "local-only"
# Why (decision 30): epochs over more labelled nodes than this would cost more than the rounds.
_MAX_LABELLED, _BATCH_NODES = 4096, 1024


@dataclass(frozen=True)
class OwnModel:
    """A client's own model, and the share that it has in what the client deploys.

    Attributes
    ----------
    state : state dict of the plain network
    share : lambda; 0 until it is chosen
    """

    state: Mapping[str, Tensor]
    share: float = 0.0

    @property
    def model_id(self) -> str:
        """Fingerprint of the model."""
        return model_fingerprint(self.state)

    def save(self, path: Path, made_of: str = "") -> None:
        """Write model and share to one file, atomically.

        Parameters
        ----------
        made_of : what the model follows from, as `read` compares it
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous().cpu() for name, tensor in self.state.items()}
        with atomic_path(path) as draft:
            # One entry, as safetensors writes several in any order, and the file is sealed.
            facts = json.dumps({"share": self.share, "made-of": made_of})
            save_file(tensors, draft, {_FACTS: facts})

    @classmethod
    def read(cls, path: Path, made_of: str = "") -> "OwnModel | None":
        """Return the model in this file; None if there is none, or one of something else.

        Parameters
        ----------
        made_of : what it must follow from; "" = whatever it is

        Raises
        ------
        DataError : the file is damaged
        """
        if not path.is_file():
            return None
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads((file.metadata() or {})[_FACTS])
                if made_of and facts["made-of"] != made_of:
                    return None
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
            share = facts["share"]
            if type(share) is not float or not 0 <= share <= 1:
                raise ValueError(f"a share of {share!r:.40}")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: expected the client's own model, found {error}; copy the client's folder "
                "again, or run again"
            ) from None
        return cls(state, share)


def own_path(client_folder: Path, run: str) -> Path:
    """Return the file of a run's own model at a client, sealed with the run's evidence."""
    return RunFolder(client_folder, run).evidence_folder / OWN


def deployed_own(client_folder: Path, run: str, config: RunConfig) -> OwnModel | None:
    """Return the own model that a client deploys after a run; None of a run without personal ones.

    Raises
    ------
    DataError : it is missing or damaged
    """
    if config.personal == "off":
        return None
    path = own_path(client_folder, run)
    if (model := OwnModel.read(path)) is None:
        raise DataError(
            f"{path}: expected the client's own model, found none; copy the client's folder again, "
            "or run again"
        )
    return model


def plain_config(config: RunConfig) -> RunConfig:
    """Return the configuration of the own model: the run's, with the plain network."""
    return replace(config, method=ALONE)


def own_config(config: RunConfig, data: ClientData) -> RunConfig:
    """Return `plain_config` for training, in batches where the client has many labels."""
    labelled = int((data.train_labels >= 0).sum())
    sampling = SamplingConfig.of(config)
    if labelled > _MAX_LABELLED and not sampling.batch_nodes:
        sampling = replace(sampling, batch_nodes=_BATCH_NODES)
    sections = tuple(sampling if type(s) is SamplingConfig else s for s in config.sections)
    return replace(plain_config(config), sections=sections)


def made_of(config: RunConfig, data: ClientData) -> str:
    """Return a digest of all that the own model follows from, in whatever folder a run lies."""
    settings = {key: value for key, value in flatten(config).items() if key not in FREE}
    facts = [settings, data.card.partition_sha256, data.encoder_sha256]
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
