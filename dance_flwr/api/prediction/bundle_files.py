"""The files of a bundle, read as those of a stranger: a schema, and shapes before contents."""

import json
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from safetensors import SafetensorError, safe_open

from dance_flwr.config.sections import PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.federation_file import Agreement
from dance_flwr.errors import UserError
from dance_flwr.federation.client.client import shape_of
from dance_flwr.methods import get_spec
from dance_flwr.nn.calibration import TEMPERATURES

FACTS, AGREED = "bundle.json", "federation.toml"
FORMAT = 1
_MAX_BYTES = 16 << 20  # of bundle.json, which is read whole
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_SCORE = _SHARE | {"type": ["number", "null"]}  # null = not measured
_COUNT = {"type": "integer", "minimum": 0}
_NAME = {"type": "string", "maxLength": 200}
_FINGERPRINT = {"type": "string", "pattern": "^[0-9a-f]{16,64}$"}
# What the commands read. A bundle comes from another institution, so nothing is believed.
_SCHEMA = {
    "type": "object",
    "required": [
        *("format", "dance_flwr", "method", "config", "model_fingerprint", "best_round"),
        *("validated", "calibration", "privacy"),
    ],
    "properties": {
        "format": {"const": FORMAT},
        "dance_flwr": _NAME,
        "method": _NAME,
        "config": {"type": "object"},
        "model_fingerprint": _FINGERPRINT,
        "best_round": _COUNT,
        "validated": {"type": "boolean"},
        "test_nodes": _COUNT,
        "own": {
            "type": "object",
            "additionalProperties": False,
            "required": ["model", "kind", "share"],
            "properties": {
                "model": _FINGERPRINT,
                "kind": {"enum": [*PERSONAL["auto"]]},
                "share": _SHARE,
            },
        },
        **dict.fromkeys(("test_accuracy", "test_macro_f1", "val_accuracy"), _SCORE),
        "calibration": {
            "type": "object",
            "additionalProperties": False,
            "required": ["temperature", "nodes", "error_before", "error_after"],
            "properties": {
                "temperature": {
                    "type": "number",
                    "minimum": min(TEMPERATURES),
                    "maximum": max(TEMPERATURES),
                },
                "nodes": _COUNT,
                "error_before": _SCORE,
                "error_after": _SCORE,
            },
        },
        "privacy": {"type": "object"},
    },
}


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of `bundle.json`; a `ValueError` says where it breaks the schema."""
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ValueError(f"{size:,} bytes")
    facts: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(facts)):
        raise ValueError(f"at {error.json_path}: {error.message:.200}")
    return facts


def _no_number(name: str) -> float:
    raise ValueError(f"{name}, which is no number of JSON")


def check_shapes(path: Path, config: RunConfig, agreement: Agreement, prefix: str = "") -> None:
    """Compare the shapes of a stored model with those of its configuration; none is allocated.

    Parameters
    ----------
    prefix : of the names of its tensors in the file
    """
    shape = shape_of(agreement.text_width, len(agreement.class_names), config)
    with torch.device("meta"):
        model = get_spec(config.method).make_client().build(shape, config)
    expected = {prefix + name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            actual = {name: file.get_slice(name).get_shape() for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: expected a model, found {error}; export it again") from None
    if actual != expected:
        name = min(n for n in actual.keys() | expected.keys() if actual.get(n) != expected.get(n))
        raise UserError(
            f"{path}: expected {name} of shape {expected.get(name)} by {FACTS} and {AGREED}, "
            f"found {actual.get(name)}; export the run again"
        )
