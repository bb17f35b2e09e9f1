"""What a client keeps of a personal model between rounds, in its own folder of the run."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.disk import read_npz, write_npz
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.server_side import entries_under

LAST, MEAN = "last/", "mean/"
_WEIGHT = "weight"


def kept(data: ClientData, run: str, round_: int, part: str) -> dict[str, Tensor]:
    """Return what the client kept after round `round_`, or after its last one before; else {}.

    Parameters
    ----------
    part : `LAST`, the tensors that it trained last, or `MEAN`, their running average over rounds,
        as the server averages the global models (`ema-decay`)
    """
    return entries_under(_stored(data, run, round_), part)


def keep(data: ClientData, config: RunConfig, info: RoundInfo, state: Mapping[str, Tensor]) -> None:
    """Keep the tensors of a round, and their running average.

    A repeated round replaces its own file and reads that of the round before.
    """
    before = _stored(data, info.run, info.round - 1)
    weight = 1 + config.ema_decay * float(before.get(_WEIGHT, 0))
    arrays = {_WEIGHT: torch.tensor(weight)}
    for name, tensor in state.items():
        past = before.get(MEAN + name, tensor)
        arrays[LAST + name] = tensor
        arrays[MEAN + name] = torch.lerp(past.double(), tensor.double(), 1 / weight).to(past.dtype)
    folder = run_folder(data.folder, info.run)
    write_npz(
        folder / _name(info.round),
        {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()},
    )
    # The best round is one of the validated ones; a repeated round needs the one before it.
    old = info.round - 2
    if old > 0 and old % config.evaluate_every:
        (folder / _name(old)).unlink(missing_ok=True)


def _stored(data: ClientData, run: str, round_: int) -> dict[str, Tensor]:
    """Return the arrays of the newest file of rounds 1 to `round_`; {} without any."""
    folder, newest = run_folder(data.folder, run), _name(round_)
    paths = [path for path in folder.glob("personal-?????.npz") if path.name <= newest]
    arrays = read_npz(max(paths)) if paths else None
    return {name: torch.as_tensor(a, device=data.device) for name, a in (arrays or {}).items()}


def _name(round_: int) -> str:
    return f"personal-{round_:05d}.npz"
