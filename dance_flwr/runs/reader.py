"""Read the result and the model of a run."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from dance_flwr.config.paths import MODEL, RESULT
from dance_flwr.errors import UserError


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of `result.json`.

    Raises
    ------
    UserError : the run has not finished
    """
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"expected {RESULT} of a finished run, found none in {folder}")
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def load_model(folder: Path) -> dict[str, Tensor]:
    """Return the state dict of the best validation round of a run."""
    return load_file(folder / MODEL)
