"""A bundle: what is needed to predict with the model of a run, and nothing that is private.

A folder with `bundle.json` (configuration and facts), `federation.toml` (classes, encoder and
chunks, as in a deployment), `model.safetensors` and a model card. It holds no text, edge or
evidence of any client.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from dance_flwr.api.prediction.bundle_files import AGREED, FACTS, FORMAT, check_shapes, read_facts
from dance_flwr.api.prediction.model_card import card_text
from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.outputs import check_out
from dance_flwr.config.paths import MODEL
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data.card import read_card
from dance_flwr.data.federation_file import Agreement, agree, read_agreement, write_agreement
from dance_flwr.disk import atomic_folder, json_text, write_text
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.client.client import Client
from dance_flwr.federation.client.run_files import OWN, OwnModel, deployed_own, kind_config
from dance_flwr.fingerprint import VERSION, file_sha256
from dance_flwr.methods import get_spec
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.nn.calibration import Calibration
from dance_flwr.runs.result import config_of, load_model, read_result, validated

CARD = "README.md"
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
            facts = read_facts(path)
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
        # Before anything is allocated: a number in a file could ask for any amount of memory.
        check_shapes(self.folder / MODEL, self.config, self.agreement)
        client = Client(ClientData.of(folder, self.config, derived_folder), self.config)
        client.load(self.weights)
        client.own = self.own
        return client

    @property
    def own(self) -> OwnModel | None:
        """The own model of the client whose bundle this is; None for the global model alone.

        Raises
        ------
        UserError : it is damaged, or not the one that `bundle.json` names
        """
        if (stated := self.facts.get("own")) is None:
            return None
        path = self.folder / OWN
        kind = stated["kind"]
        check_shapes(path, kind_config(self.config, kind), self.agreement, f"{kind}/")
        model = OwnModel.read(path)
        if model is None or model.facts != stated:
            raise UserError(
                f"{path}: expected the client's own model {stated['model']}, found another; export "
                "the run again"
            )
        return model


def export(run: Path, out: Path, client_folder: Path | None = None) -> Bundle:
    """Write the bundle of a finished run; it appears whole or not at all.

    Probabilities are scaled by the temperature of the run. Of a run with personal models, the
    bundle of one client predicts as that client does; any other one is the global model, as it is,
    since the temperature was fitted on what the clients deploy.

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
        "calibration": result["calibration"],
    }
    own = None
    if (settings := config_of(result)).personal != "off":
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
        write_agreement(draft / AGREED, agreement)
        # Byte for byte, so that the fingerprint stays that of the run.
        (draft / MODEL).write_bytes((run / MODEL).read_bytes())
        if own is not None:
            own.save(draft / OWN)
        write_text(draft / FACTS, json_text(facts))
        # As a user will open it: one that cannot be read is never finished.
        bundle = Bundle.open(draft)
        assert weights.keys() == bundle.weights.keys()
        write_text(draft / CARD, card_text(facts, agreement, bundle.calibration))
    return Bundle.open(out)


def personalised(bundle: Bundle, client_folder: Path, out: Path) -> Bundle:
    """Write the bundle of a client that joins after the run: no round, and nothing leaves it.

    As in a run with `personal`, "mix" where the run had none: the client's own validation nodes
    choose the share of its model.

    Raises
    ------
    UserError : the bundle is a client's, `out` exists, or the data do not fit the model
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
    # None of them is of this client.
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
    """Return the scores of the model in a bundle of a run whose result is of personal models."""
    unknown = dict.fromkeys(("test_macro_f1", "val_accuracy"))
    if client_folder is None:
        return {"test_accuracy": result["test_accuracy_by_view"]["global"], **unknown}
    number = read_card(client_folder).client
    # Under masks no client has a row.
    row: Mapping[str, Any] = next((row for row in result["clients"] if row["client"] == number), {})
    counted = {key: row.get(key) for key in ("test_accuracy", "val_accuracy")}
    return unknown | counted | {key: row.get(key, 0) for key in ("test_nodes", "val_nodes")}


def _folder(run: Path, result: Mapping[str, Any], client_folder: Path | None) -> Path:
    """Return the folder of a client, whose classes and encoder are those of the run."""
    if client_folder is not None:
        return client_folder
    if (partition := result.get("partition_dir")) and Path(partition).is_dir():
        return min(Path(partition).glob("client-*"))
    raise UserError(
        f"{run}: expected the folder of a client, found none on this machine; name one with "
        "--client-folder: classes and encoder are read from it"
    )
