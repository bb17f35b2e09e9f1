"""A bundle: what is needed to predict with the model of a run, and nothing that is private.

A folder with `bundle.json` (configuration and facts), `federation.toml` (classes, encoder and
chunks, as in a deployment), `model.safetensors` and a model card. It holds no text, edge or
evidence of any client. A bundle may come from another institution, so its files are checked
against a schema, and shapes before contents.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.paths import MODEL, check_out
from dance_flwr.config.sections import PERSONAL
from dance_flwr.config.tree import RunConfig, flatten, parse, parse_stored
from dance_flwr.data.card import read_card
from dance_flwr.data.federation_file import Agreement, agree, agreement_text, read_agreement
from dance_flwr.disk import atomic_folder, json_text, write_text
from dance_flwr.errors import ConfigError, UserError, counted
from dance_flwr.escaping import markdown
from dance_flwr.federation.client.client import Client, shape_of
from dance_flwr.federation.client.own_models import OWN, OwnModel, deployed_own, kind_config
from dance_flwr.fingerprint import VERSION, file_sha256
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.calibration import TEMPERATURES, Calibration
from dance_flwr.runs.result import config_of, load_model, read_result, validated

FACTS, AGREED = "bundle.json", "federation.toml"
FORMAT = 1
_MAX_BYTES = 16 << 20  # of bundle.json, which is read whole
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_SCORE = _SHARE | {"type": ["number", "null"]}  # null = not measured
_COUNT = {"type": "integer", "minimum": 0}
_NAME = {"type": "string", "maxLength": 200}
_FINGERPRINT = {"type": "string", "pattern": "^[0-9a-f]{16,64}$"}
# What the commands read. A bundle may come from another institution, so nothing is trusted.
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


def _read_facts(path: Path) -> dict[str, Any]:
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ValueError(f"{size:,} bytes")
    facts: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    if error := best_match(Draft202012Validator(_SCHEMA).iter_errors(facts)):
        raise ValueError(f"at {error.json_path}: {error.message:.200}")
    return facts


def _no_number(name: str) -> float:
    raise ValueError(f"{name}, which JSON does not allow")


def _check_shapes(path: Path, config: RunConfig, agreement: Agreement, prefix: str = "") -> None:
    """Compare the shapes in a model file with its configuration; nothing is allocated.

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


_CARD = """\
---
library_name: dance-flwr
pipeline_tag: graph-ml
tags:
- federated-learning
- text-attributed-graph
- node-classification
- flower
---

# {method}, trained by a federation of {clients} clients

A node classifier for text-attributed graphs. Federated learning, {rounds} rounds with dance-flwr
{version}; the model of round {best}, {choice}.

```bash
dance-flwr predict BUNDLE --data FOLDER --out predictions.parquet{evidence}
```

| | |
| --- | --- |
{rows}

## Limits

Accuracy is that of the clients' own nodes, most of whose neighbours had labels in training. Nodes
of another institution have other classes, texts and edges, and no training labels among their
neighbours: check a sample by hand before you rely on it. A model can reveal something of the data
that it was trained on; without differential privacy nothing bounds how much.
"""


def card_text(facts: Mapping[str, Any], agreement: Agreement, calibration: Calibration) -> str:
    """Return the model card as Markdown, with the metadata of the Hugging Face Hub in front."""
    config, privacy, spec = facts["config"], facts["privacy"], get_spec(facts["method"])
    deploys, spent = "the global model", "none"
    if own := facts.get("own"):
        deploys = f"the mixture with one client's own model ({own['kind']}), share {own['share']:g}"
    if privacy["dp"] != "none":
        spent = (
            f"{privacy['dp']}, epsilon {privacy['epsilon']:.4g} of training nodes at delta "
            f"{privacy['delta']:g}"
        )
    # Names of data come from strangers, and the hub renders HTML.
    weights = markdown(agreement.encoder_sha256[:12])
    rows = {
        "classes": ", ".join(map(markdown, agreement.class_names)),
        "predicts with": deploys,
        "text encoder": f"{markdown(agreement.encoder)}, weights {weights}",
        "accuracy on the clients' test nodes": _accuracy(facts),
        "calibration": calibration,
        "what left the clients in training": spec.card.leaves_client,
        "secure aggregation": "on" if privacy["secure_aggregation"] else "off",
        "differential privacy": spent,
        "model": facts["model_fingerprint"],
        "provenance of the code": markdown(facts.get("provenance", "not recorded")),
    }
    best = "the best on validation" if facts["validated"] else "the last, as none was validated"
    return _CARD.format(
        method=facts["method"],
        clients=config["clients"],
        rounds=config["rounds"],
        version=facts["dance_flwr"],
        best=facts["best_round"],
        choice=best,
        evidence=" --evidence evidence.jsonl" if spec.keeps_evidence else "",
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
    )


def _accuracy(facts: Mapping[str, Any]) -> str:
    if facts["test_accuracy"] is None:
        if facts["privacy"]["dp"] != "none":
            return "not measured: clients count no test node under differential privacy"
        return "not measured: no client has test nodes, or masks hide them"
    score = f"{facts['test_accuracy']:.4f} ({counted(facts['test_nodes'], 'node')})"
    f1 = facts["test_macro_f1"]  # of personal models, not known of the global one
    return score if f1 is None else f"{score}, macro-F1 {f1:.4f}"


CARD = "README.md"
# Keys about the machine and the clients of the run, which do not matter to a user of its model.
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
    folder : folder of the bundle; facts : content of `bundle.json`
    config : configuration of the run; agreement : classes, encoder and chunks of every client
    calibration : temperature of the deployed probabilities
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
        UserError : there is no bundle, or it is damaged or of another version
        """
        path = folder / FACTS
        if not path.is_file():
            raise UserError(
                f"expected a bundle with {FACTS}, found none at {folder}; make one with "
                "`dance-flwr export RUN --out BUNDLE`"
            )
        try:
            facts = _read_facts(path)
            config = parse_stored(facts["config"])
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
        """The sha256 of everything that predictions depend on: facts, agreement and model."""
        names = (FACTS, AGREED, MODEL, *([OWN] if "own" in self.facts else []))
        files = (self.folder / name for name in names)
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
        """Return a client with this model and the data of its folder.

        Raises
        ------
        UserError : the data have other classes, another encoder or other chunks
        """
        agreement = agree(folder)
        # By hash, as the encoder may have another name on this machine.
        for name in ("class_names", "encoder_sha256", "chunk_tokens"):
            expected, actual = getattr(self.agreement, name), getattr(agreement, name)
            if expected != actual:
                raise UserError(
                    f"{folder}: expected {name.replace('_', '-')} {expected} of the bundle, found "
                    f"{actual}; prepare the data as {AGREED} of the bundle says"
                )
        # Before anything is allocated: a number in a file could ask for any amount of memory.
        _check_shapes(self.folder / MODEL, self.config, self.agreement)
        client = Client(ClientData.of(folder, self.config, derived_folder), self.config)
        client.load(self.weights)
        client.own = self.own
        return client

    @property
    def own(self) -> OwnModel | None:
        """The own model of the bundle's client; None if the bundle has the global model only.

        Raises
        ------
        UserError : it is damaged, or not the one that `bundle.json` names
        """
        if (stated := self.facts.get("own")) is None:
            return None
        path = self.folder / OWN
        kind = stated["kind"]
        _check_shapes(path, kind_config(self.config, kind), self.agreement, f"{kind}/")
        model = OwnModel.read(path)
        if model is None or model.facts != stated:
            raise UserError(
                f"{path}: expected the client's own model {stated['model']}, found another; export "
                "the run again"
            )
        return model


def export(run: Path, out: Path, client_folder: Path | None = None) -> Bundle:
    """Write the bundle of a finished run, completely or not at all.

    Probabilities are scaled by the temperature of the run. In a run with personal models, the
    bundle of one client predicts as that client does. Without `client_folder`, the bundle of such a
    run is the global model without calibration, as the temperature was fitted on what the clients
    deploy.

    Parameters
    ----------
    client_folder : folder of one client; None = those of the run's partition

    Raises
    ------
    UserError : the run is unfinished or has no global model, `out` exists or cannot be created, or
        no client folder is on this machine
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
    # With the reading that the run's clients chose, so that nothing is left to choose.
    settings = config_of(result)
    config = {key: value for key, value in flatten(settings).items() if key not in _LOCAL}
    facts = {
        "format": FORMAT,
        "dance_flwr": VERSION,
        "method": method,
        "config": flatten(parse(config)),
        **{key: result[key] for key in _RECORDED if key in result},
        "validated": validated(result),
        "calibration": result["calibration"],
    }
    own = None
    if settings.personal != "off":
        facts |= _scores(result, client_folder)
        if client_folder is not None:
            own = deployed_own(client_folder, str(result["run"]), settings)
        else:
            facts["calibration"] = asdict(Calibration())
    if own is not None:
        own = own.deployed
        facts["own"] = own.facts
    weights = load_model(run, str(result["model_fingerprint"]))
    with atomic_folder(out) as draft:
        agreement = agree(_folder(run, result, client_folder))
        write_text(draft / AGREED, agreement_text(agreement))
        # Byte for byte, so that the fingerprint stays that of the run.
        (draft / MODEL).write_bytes((run / MODEL).read_bytes())
        if own is not None:
            own.save(draft / OWN)
        write_text(draft / FACTS, json_text(facts))
        # Opened as a user will open it, before it gets its name.
        bundle = Bundle.open(draft)
        assert weights.keys() == bundle.weights.keys()
        write_text(draft / CARD, card_text(facts, agreement, bundle.calibration))
    return Bundle.open(out)


def personalised(bundle: Bundle, client_folder: Path, out: Path) -> Bundle:
    """Write the bundle of a client that joins after the run, without a round.

    Nothing leaves the client. As in a run with `personal` ("mix" if the run had none), the client's
    own validation nodes choose the share of its model.

    Raises
    ------
    UserError : the bundle belongs to a client, `out` exists, or the data do not fit the model
    """
    from dance_flwr.federation.client.personal import personalise  # imports Flower

    if "own" in bundle.facts or out.exists():
        raise UserError(
            f"expected a bundle of the global model and a new folder, found {bundle.folder} and "
            f"{out}; export the run without --client-folder, or choose another name"
        )
    if bundle.config.personal == "off":
        bundle = replace(bundle, config=replace(bundle.config, personal="mix"))
    client, round_ = bundle.client(client_folder), int(bundle.facts["best_round"])
    info = RoundInfo(str(bundle.facts["run"]), round_, bundle.model_id)
    own = personalise(client, bundle.weights, info, (), 0).deployed
    facts = {**bundle.facts, "own": own.facts}
    # The scores of the run are not this client's.
    facts |= dict.fromkeys(("test_accuracy", "test_macro_f1", "val_accuracy"))
    facts["calibration"] = asdict(calibration := Calibration())
    with atomic_folder(out) as draft:
        for name in (AGREED, MODEL):
            (draft / name).write_bytes((bundle.folder / name).read_bytes())
        own.save(draft / OWN)
        write_text(draft / FACTS, json_text(facts))
        write_text(draft / CARD, card_text(facts, bundle.agreement, calibration))
    return Bundle.open(out)


def _scores(result: Mapping[str, Any], client_folder: Path | None) -> dict[str, Any]:
    unknown = dict.fromkeys(("test_macro_f1", "val_accuracy"))
    if client_folder is None:
        return {"test_accuracy": result["test_accuracy_by_view"]["global"], **unknown}
    number = read_card(client_folder).client
    # Under secure aggregation no client has a row.
    row: Mapping[str, Any] = next((row for row in result["clients"] if row["client"] == number), {})
    counted = {key: row.get(key) for key in ("test_accuracy", "val_accuracy")}
    return unknown | counted | {key: row.get(key, 0) for key in ("test_nodes", "val_nodes")}


def _folder(run: Path, result: Mapping[str, Any], client_folder: Path | None) -> Path:
    """Return the folder of any client; all have the classes and the encoder of the run."""
    if client_folder is not None:
        return client_folder
    if (partition := result.get("partition_dir")) and Path(partition).is_dir():
        return min(Path(partition).glob("client-*"))
    raise UserError(
        f"{run}: expected the folder of a client, found none on this machine; name one with "
        "--client-folder: classes and encoder are read from it"
    )
