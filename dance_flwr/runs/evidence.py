"""The evidence of a finished run: open its model, its sites and its packs, show and verify them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dance_flwr.config.sections import reading_of
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.explaining import explain
from dance_flwr.dance.packs import Packs
from dance_flwr.dance.rendering import example_row, render
from dance_flwr.dance.state import RunFolder
from dance_flwr.dance.verification import (
    VerificationCounts,
    verify_parts,
    verify_sources,
    verify_spans,
    verify_weights,
)
from dance_flwr.data.site import Site
from dance_flwr.errors import ConfigError, UserError
from dance_flwr.federation.client.client import load_at, shape_of
from dance_flwr.federation.client.smoothing import smoothing_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import get_spec
from dance_flwr.runs.reader import load_model, read_result


@dataclass(frozen=True)
class EvidenceRun:
    """A finished run of `dance`, opened for its evidence.

    Attributes
    ----------
    folder : the run's folder, with `result.json` and `model.safetensors`
    result : content of `result.json`; config : the run's configuration
    client_folder : folder of the one client to read; None = all clients of the run's partition
    """

    folder: Path
    result: Mapping[str, Any]
    config: RunConfig
    client_folder: Path | None = None

    @classmethod
    def open(cls, folder: Path, client_folder: Path | None = None) -> "EvidenceRun":
        """Open the run in `folder`.

        Raises
        ------
        UserError : the run is not finished, keeps no evidence, or is of another version
        """
        result = read_result(folder)
        if result["method"] != "dance":
            raise UserError(
                f"{folder}: expected a run of method 'dance', found {result['method']!r}, which "
                "keeps no evidence"
            )
        try:
            config = parse(result["config"])
        except ConfigError as error:
            raise UserError(
                f"{folder}: expected the configuration of a run of this version, found {error}; "
                "read the run with the version that wrote it"
            ) from None
        return cls(folder, result, config, client_folder)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The saved state dict of the best validation round."""
        return load_model(self.folder)

    @property
    def settings(self) -> DanceConfig:
        """The section `dance` of the run's configuration."""
        return DanceConfig.of(self.config)

    @property
    def clients(self) -> list[int | None]:
        """Numbers of the clients to read; None is the client of `client_folder`."""
        return [None] if self.client_folder is not None else list(range(self.config.clients))

    def site(self, client: int | None) -> Site:
        """Open the data of a client.

        Raises
        ------
        UserError : the clients of this run keep their folders on other machines
        """
        partition = self.result["partition_dir"]
        if self.client_folder is None and partition is None:
            raise UserError(
                "expected --client-folder, found none; the clients of this run keep their "
                "evidence on their own machines"
            )
        folder = self.client_folder or Path(partition) / f"client-{client}"
        inductive = self.config.split_mode == "inductive"
        return Site(folder, torch.device("cpu"), inductive, reading_of(self.config))

    def store(self, site: Site) -> RunFolder:
        """Return the folder that this run left at a client."""
        return RunFolder(site.folder, self.result["run"])

    def smooth(self, site: Site) -> Callable[[Tensor], Tensor] | None:
        """Return what the run's `smoothing` does to deployed probabilities; None = nothing."""
        return smoothing_of(self.config, site)

    def model(self, site: Site) -> Any:
        """Build the model for the shapes of a site and load the saved weights and its prior."""
        shape = shape_of(site.text_dim, len(site.card.class_names), self.config)
        model = get_spec(self.config.method).make_client().build(shape, self.config)
        load_at(site, model, self.weights, self.config)
        return model


def show_evidence(run: Path, client: int, node: str | None, client_folder: Path | None) -> str:
    """Return one evidence pack of a run as text.

    Parameters
    ----------
    client : number of the client
    node : id of the node; None = the most confident pack that draws on a neighbour. A node outside
        the condensed core has no stored pack; its pack is computed with the run's model
    client_folder : the client's folder; None = that of the run's partition

    Raises
    ------
    UserError : the client has no packs, or no node of this id
    """
    opened = EvidenceRun.open(run, client_folder)
    site = opened.site(client)
    packs = Packs.load(opened.store(site).final_path)
    if node is None:
        if not len(packs.nodes):
            raise UserError(
                f"client {client}: expected evidence packs, found none; choose another client"
            )
        return render(site, packs, example_row(packs))
    ids = site.ids()
    if node not in ids:
        raise UserError(f"--node: expected the id of a node of client {client}, found {node!r}")
    row = packs.row_of(ids.index(node))
    if row is None:
        nodes = torch.as_tensor(np.array([ids.index(node)]))
        round_, fingerprint = opened.result["best_round"], opened.result["model_fingerprint"]
        packs = explain(
            *(opened.model(site), site, nodes, opened.settings, round_, fingerprint),
            smooth=opened.smooth(site),
        )
        row = 0
    return render(site, packs, row)


def verify_evidence(run: Path, client_folder: Path | None, say: Callable[[str], None]) -> None:
    """Verify every evidence pack of a run against the source texts and the saved model.

    Parameters
    ----------
    client_folder : folder of the one client to verify; None = all clients of the run's partition
    say : receives one line per client, then a verdict

    Raises
    ------
    UserError : names the first span, weight or model that does not agree
    """
    opened = EvidenceRun.open(run, client_folder)
    fingerprint = model_fingerprint(opened.weights)
    if fingerprint != opened.result["model_fingerprint"]:
        raise UserError(
            f"{run}: expected model {opened.result['model_fingerprint']}, found {fingerprint}; "
            "the saved model was altered"
        )
    for client in opened.clients:
        site = opened.site(client)
        verified = _verify_client(opened, site, fingerprint)
        say(
            f"client {site.card.client}: {verified.spans:,} spans of {verified.packs:,} packs read "
            f"back from the source texts, weights of {verified.recomputed:,} packs recomputed from "
            f"model {fingerprint}"
        )
    say("evidence verified")


def _verify_client(opened: EvidenceRun, site: Site, fingerprint: str) -> VerificationCounts:
    """Verify all packs that a client stored in this run.

    Raises
    ------
    UserError : names the first span, weight or model that does not agree
    """
    texts, model, settings = verify_sources(site), opened.model(site), opened.settings
    verified = VerificationCounts()
    for path in opened.store(site).all_packs():
        packs, final = Packs.load(path), path.stem == "final"
        if final and packs.model_id != fingerprint:
            raise UserError(
                f"{path}: expected packs of model {fingerprint}, found {packs.model_id}; they were "
                "altered"
            )
        verify_spans(site, packs, path.name, texts)
        verify_parts(packs, path.name)
        verified.packs += len(packs.nodes)
        verified.spans += len(packs.chunks)
        # Evidence that rests on an earlier model too, frozen or preselected by its difficulty,
        # does not follow from the model that the pack names.
        fresh = settings.text_refresh_every == 1 and packs.difficulty_round == packs.round
        if packs.model_id == fingerprint and (final or fresh):
            graph = None if final else site.training_graph
            smooth = opened.smooth(site) if final else None
            verify_weights(site, packs, path.name, model, settings, graph, smooth)
            verified.recomputed += len(packs.nodes)
    return verified
