"""Models that a client trains for itself after a run, and the one that it deploys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.state import RunFolder
from dance_flwr.disk import atomic_path
from dance_flwr.errors import DataError, reason_of
from dance_flwr.fingerprint import model_fingerprint

OWN = "own.safetensors"
_FACTS = "facts"  # the entry of `OWN` beside its tensors
# Why fixed (decision 30): the nodes that choose between the kinds would favour a model whose number
# of rounds they had chosen, too.
TUNING_ROUNDS = 10


@dataclass(frozen=True)
class OwnModel:
    """The client's own models, and the one that it deploys with the global model.

    Attributes
    ----------
    states : kind -> state dict; "alone" is of the plain network, "tuned" of the run's method
    kind : of the deployed one
    share : lambda; 0 until it is chosen
    """

    states: Mapping[str, Mapping[str, Tensor]]
    kind: str
    share: float = 0.0

    @property
    def facts(self) -> dict[str, str | float]:
        """Fingerprint, kind and share of the deployed model."""
        model = model_fingerprint(self.states[self.kind])
        return {"model": model, "kind": self.kind, "share": self.share}

    @property
    def deployed(self) -> "OwnModel":
        """The deployed model without the others."""
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
            # One entry: safetensors writes several in any order, and the file is hashed.
            facts = json.dumps({"kind": self.kind, "share": self.share, "made-of": made_of})
            draft.write_bytes(save(tensors, {_FACTS: facts}))

    @classmethod
    def read(cls, path: Path, made_of: str = "") -> "OwnModel | None":
        """Return the models in a file; None if it is missing, or not of `made_of`."""
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
                raise ValueError(f"{kind!r:.40} to deploy among {sorted(states)!r:.80}")
            if type(share) is not float or not 0 <= share <= 1:
                raise ValueError(f"a share of {share!r:.40}")
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: expected the client's own model, found {reason_of(error)}; copy the "
                "client's folder again, or run again"
            ) from None
        return cls(states, kind, share)


def own_path(client_folder: Path, run: str) -> Path:
    """Return the file of a run's own models at a client; it is part of the run's evidence."""
    return RunFolder(client_folder, run).evidence_folder / OWN


def tuning_run(run: str) -> str:
    """Return the name under which a client tunes the model of a run, with a state of its own."""
    return f"{run}-tuned"


def deployed_own(client_folder: Path, run: str, config: RunConfig) -> OwnModel | None:
    """Return a client's own models after a run; None if the run has no personal models."""
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
    """Return the settings of an own model: with the plain network, or with fewer rounds."""
    if kind == ALONE:
        return replace(config, method="local-only")
    return replace(config, personal="off", rounds=TUNING_ROUNDS)


def own_rounds(config: RunConfig) -> int:
    """Return for how many rounds a client trains its own models of a run; 0 without any."""
    return sum(kind_config(config, kind).rounds for kind in PERSONAL[config.personal])
