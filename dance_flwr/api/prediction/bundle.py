"""A bundle: what is needed to predict with the model of a run, and nothing that is private.

A folder with `bundle.json` (configuration and facts), `federation.toml` (classes, encoder and
chunks, as in a deployment), `model.safetensors` and a model card. It holds no text, edge or
evidence of any client.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dance_flwr.api.prediction.calibration import MAX_TEMPERATURE, Calibration
from dance_flwr.api.prediction.model_card import card_text
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.outputs import check_out
from dance_flwr.config.paths import MODEL
from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data.federation_file import Agreement, agree, read_agreement, write_agreement
from dance_flwr.disk import atomic_folder, json_text, write_text
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.client.client import Client, shape_of
from dance_flwr.fingerprint import VERSION, file_sha256
from dance_flwr.methods import get_spec
from dance_flwr.runs.reader import config_of, load_model, read_result, validated

FACTS, AGREED, CARD = "bundle.json", "federation.toml", "README.md"
FORMAT = 1
_MAX_BYTES = 16 << 20  # of bundle.json, which is read whole
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_SCORE = _SHARE | {"type": ["number", "null"]}  # null = not measured
_COUNT = {"type": "integer", "minimum": 0}
_NAME = {"type": "string", "maxLength": 200}
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
        "model_fingerprint": {"type": "string", "pattern": "^[0-9a-f]{16,64}$"},
        "best_round": _COUNT,
        "validated": {"type": "boolean"},
        "test_nodes": _COUNT,
        **dict.fromkeys(("test_accuracy", "test_macro_f1", "val_accuracy"), _SCORE),
        "calibration": {
            "type": "object",
            "additionalProperties": False,
            "required": ["temperature", "nodes", "error_before", "error_after"],
            "properties": {
                "temperature": {
                    "type": "number",
                    "minimum": 1 / MAX_TEMPERATURE,
                    "maximum": MAX_TEMPERATURE,
                },
                "nodes": _COUNT,
                "error_before": _SHARE,
                "error_after": _SHARE,
            },
        },
        "privacy": {"type": "object"},
    },
}
# Keys about the machine and the clients of the run, which mean nothing to a user of its model.
_LOCAL = ("data", "data-root", "out", "resume", "overwrite", "encoder", "node-keys")
_RECORDED = (
    *("run", "seed", "best_round", "model_fingerprint", "test_accuracy", "test_macro_f1"),
    *("val_accuracy", "test_nodes", "val_nodes", "test_accuracy_by_view", "share_of_views"),
    *("privacy", "provenance"),
)


@dataclass(frozen=True)
class Bundle:
    """An exported model, opened.

    Attributes
    ----------
    folder : of the bundle; facts : content of `bundle.json`
    config : the run's configuration; agreement : classes, encoder and chunks of every client
    calibration : of the deployed probabilities
    """

    folder: Path
    facts: Mapping[str, Any]
    config: RunConfig
    agreement: Agreement
    calibration: Calibration

    @classmethod
    def open(cls, folder: Path) -> "Bundle":
        """Open a bundle.

        Raises
        ------
        UserError : there is none, or it is damaged or of another version
        """
        path = folder / FACTS
        if not path.is_file():
            raise UserError(
                f"expected a bundle with {FACTS}, found none at {folder}; make one with "
                "`dance-flwr export RUN --out BUNDLE`"
            )
        try:
            facts = _read_facts(path)
            config = parse(facts["config"])
            calibration = Calibration(**facts["calibration"])
        except (OSError, ValueError, RecursionError, ConfigError) as error:
            raise UserError(
                f"{path}: expected a bundle of format {FORMAT} and this version, found {error}; "
                f"open it with dance-flwr as in {CARD}, or export the run again"
            ) from None
        return cls(folder, facts, config, read_agreement(folder / AGREED), calibration)

    @property
    def model_id(self) -> str:
        """Fingerprint of the model."""
        return str(self.facts["model_fingerprint"])

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything that decides a prediction: facts, agreement and model."""
        files = (self.folder / name for name in (FACTS, AGREED, MODEL))
        return sha256("".join(map(file_sha256, files)).encode()).hexdigest()

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The model's state dict.

        Raises
        ------
        UserError : it is damaged, or not the one that `bundle.json` names
        """
        return load_model(self.folder, self.model_id)

    def client(self, folder: Path, derived_folder: Path | None = None) -> Client:
        """Return the model at the data in a client's folder.

        Raises
        ------
        UserError : its classes, encoder or chunks are others
        """
        agreement = agree(folder)
        # By hash: the encoder may have another name on this machine.
        for name in ("class_names", "encoder_sha256", "chunk_tokens"):
            expected, actual = getattr(self.agreement, name), getattr(agreement, name)
            if expected != actual:
                raise UserError(
                    f"{folder}: expected {name.replace('_', '-')} {expected} of the bundle, found "
                    f"{actual}; prepare the data as {AGREED} of the bundle says"
                )
        self._check_shapes()
        data = ClientData(
            folder,
            torch.device("cpu"),
            self.config.split_mode == "inductive",
            reading_of(self.config),
            derived_folder,
        )
        client = Client(data, self.config)
        client.load(self.weights)
        return client

    def _check_shapes(self) -> None:
        """Compare the shapes of the stored model with those of its configuration.

        Neither is allocated: a number in a file could ask for any amount of memory.

        Raises
        ------
        UserError : they differ, or the file is no model
        """
        shape = shape_of(self.agreement.text_width, len(self.agreement.class_names), self.config)
        with torch.device("meta"):
            model = get_spec(self.config.method).make_client().build(shape, self.config)
        expected = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
        path = self.folder / MODEL
        try:
            with safe_open(path, "pt") as file:
                names = file.keys()
                actual = {name: file.get_slice(name).get_shape() for name in names}
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: expected a model, found {error}; export it again") from None
        if actual != expected:
            name = min(
                n for n in actual.keys() | expected.keys() if actual.get(n) != expected.get(n)
            )
            raise UserError(
                f"{path}: expected {name} of shape {expected.get(name)} by {FACTS} and {AGREED}, "
                f"found {actual.get(name)}; export the run again"
            )


def export(run: Path, out: Path, client_folder: Path | None = None) -> Bundle:
    """Write the bundle of a finished run; it appears whole or not at all.

    Temperature scaling is fitted on the validation nodes of the clients whose folders are here.

    Parameters
    ----------
    client_folder : folder of one client; None = those of the run's partition

    Raises
    ------
    UserError : the run is unfinished or has no global model, `out` exists or cannot be created, or
        no folder of a client is on this machine
    """
    result = read_result(run)
    method = str(result["method"])
    if get_spec(method).card.evaluation != "global":
        raise UserError(
            f"{run}: expected a run with a global model, found method {method!r}, whose clients "
            "deploy models of their own"
        )
    if out.exists():
        raise UserError(f"--out: expected a new folder, found {out}; choose another or remove it")
    check_out(out)
    folders = _folders(run, result, client_folder)
    # With the reading that the run's clients chose: a bundle leaves nothing open.
    settled = flatten(config_of(result))
    config = {key: value for key, value in settled.items() if key not in _LOCAL}
    facts = {
        "format": FORMAT,
        "dance_flwr": VERSION,
        "method": method,
        "config": flatten(parse(config)),
        **{key: result[key] for key in _RECORDED if key in result},
        "validated": validated(result),
        "calibration": vars(Calibration()),
    }
    weights = load_model(run, str(result["model_fingerprint"]))
    with atomic_folder(out) as draft:
        agreement = agree(folders[0])
        write_agreement(draft / AGREED, agreement)
        # Byte for byte, so that the fingerprint stays that of the run.
        (draft / MODEL).write_bytes((run / MODEL).read_bytes())
        write_text(draft / FACTS, json_text(facts))
        # As a user will open it: one that cannot be read is never finished.
        bundle = Bundle.open(draft)
        assert weights.keys() == bundle.weights.keys()
        fitted = Calibration.fit(bundle.client(folder) for folder in folders)
        facts["calibration"] = vars(fitted)
        write_text(draft / FACTS, json_text(facts))
        write_text(draft / CARD, card_text(facts, agreement, fitted))
    return Bundle.open(out)


def _read_facts(path: Path) -> dict[str, Any]:
    """Return the content of `bundle.json`, which follows the schema.

    Raises
    ------
    ValueError : it does not
    """
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ValueError(f"{size:,} bytes")
    facts: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(facts)):
        raise ValueError(f"at {error.json_path}: {error.message:.200}")
    return facts


def _no_number(name: str) -> float:
    raise ValueError(f"{name}, which is no number of JSON")


def _folders(run: Path, result: Mapping[str, Any], client_folder: Path | None) -> list[Path]:
    """Return the folders of clients to fit on, at least one."""
    if client_folder is not None:
        return [client_folder]
    if (partition := result.get("partition_dir")) and Path(partition).is_dir():
        return sorted(Path(partition).glob("client-*"))
    raise UserError(
        f"{run}: expected the folder of a client, found none on this machine; name one with "
        "--client-folder: classes and encoder are read from it"
    )
