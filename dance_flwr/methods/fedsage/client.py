"""The client side of FedSage."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.site import LocalGraph, Site, run_folder
from dance_flwr.errors import UserError
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.fedsage.config import FedSageConfig
from dance_flwr.methods.fedsage.neighgen.files import GENERATOR, MENDED, read, write
from dance_flwr.methods.fedsage.neighgen.learning import State
from dance_flwr.methods.fedsage.neighgen.mended_graph import Generated, mended_operator
from dance_flwr.methods.fedsage.neighgen_client import (
    TRAINING,
    WHOLE,
    advanced,
    begun,
    generated,
    graphs,
    nothing_generated,
    shipped,
    visited,
)
from dance_flwr.methods.plain_method import PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.seeding import seeded

_DONE = "exchanged"  # the last step that the generator has made


@dataclass(frozen=True)
class Mended:
    """A complete graph and its g generated nodes behind the n: features [n + g, F], operator of the
    backbone's kind.
    """

    features: Tensor
    operator: Tensor


_OPENED: WeakKeyDictionary[Site, dict[str, tuple[object, Mended]]] = (
    WeakKeyDictionary()
)  # the last of each graph


class FedSage(PlainMethod):
    """The plain network on the mended graph, its own at each client."""

    def exchange(
        self, site: Site, config: RunConfig, info: RoundInfo, step: int, inbox: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Learn alone (step 0), take gradients of others' generators (odd), or step with the sum of
        one's own (even).

        The last step generates the neighbours; what it leaves in the client's folder is all that
        rounds need. A step that is asked again is answered alike.

        Raises
        ------
        UserError : the generator of the step before is not in the client's folder
        """
        if step % 2:
            return visited(site, config, inbox)
        folder, last = (
            run_folder(site.folder, info.run),
            step == 2 * FedSageConfig.of(config).exchanges,
        )
        if step == 0:
            (folder / MENDED).unlink(
                missing_ok=True
            )  # of a start of this run that ended before its first round
            state = begun(site, config)
        elif last and (folder / MENDED).is_file():
            return {}
        else:
            state = _advanced(folder / GENERATOR, site, config, step, inbox)
        if last:
            _finish(folder, state, site, config)
            return {}
        write(folder / GENERATOR, state | {_DONE: torch.tensor(step)})
        with seeded(config.seed, "latents", round_=step, client=site.card.client):
            return shipped(state, config)

    def train(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> Report:
        """Minimise the mean cross-entropy of all labelled training nodes on the mended graph."""
        report = Report()
        with report.phase("topology"):
            mended = mended_graph(model, site, config, info, TRAINING if site.inductive else WHOLE)
        with report.phase("train"):
            labels = site.train_labels.new_full((len(mended.features),), -1)
            labels[: site.num_nodes] = site.train_labels
            report.loss = train_on(
                model, mended.features, mended.operator, labels, config, info.round
            )
        return report

    @torch.no_grad()
    def predict(
        self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo
    ) -> dict[str, Tensor]:
        """Predict every node by one pass over the mended graph."""
        model.eval()
        mended = mended_graph(model, site, config, info, WHOLE)
        logits = model.graph_logits(model.backbone(mended.features, mended.operator))[
            : site.num_nodes
        ]
        return {"deployed": torch.softmax(logits, dim=1)}


def mended_graph(
    model: PlainModel, site: Site, config: RunConfig, info: RoundInfo, name: str
) -> Mended:
    """Return a complete graph and the neighbours that the client generated for it in this run.

    A client without any, since it was away when generators were exchanged or has lost its folder,
    lets its generator learn again, alone: it depends on the run's seed only, not on the round.

    Parameters
    ----------
    name : which of `neighgen.graphs`
    """
    path, kind = run_folder(site.folder, info.run) / MENDED, model.backbone.operator
    graph = graphs(site)[name]
    if not FedSageConfig.of(config).most:
        return _join(graph, nothing_generated(site), site, kind)
    found = None if path.is_file() else _alone(path, site, config)
    key = (path, path.stat().st_mtime_ns, kind)
    opened = _OPENED.setdefault(site, {})
    if name not in opened or opened[name][0] != key:
        found = found or read(path, site.device) or _alone(path, site, config)
        opened[name] = (
            key,
            _join(graph, Generated(found[name + "owners"], found[name + "features"]), site, kind),
        )
    return opened[name][1]


def _join(graph: LocalGraph, added: Generated, site: Site, kind: str) -> Mended:
    operator = mended_operator(kind, *graph.edges(), added.owners, site.num_nodes)
    return Mended(torch.cat([site.table.nodes, added.features]), operator)


def _alone(path: Path, site: Site, config: RunConfig) -> State:
    client = site.card.client
    events.emit(
        "generator_alone",
        f"client {client}: its generator learns without other clients",
        client=client,
    )
    with seeded(config.seed, "exchange", client=client):
        return _finish(path.parent, begun(site, config), site, config)


def _finish(folder: Path, state: State, site: Site, config: RunConfig) -> State:
    """Generate the neighbours, keep them and forget the generator."""
    made = generated(state, site, config)
    write(folder / MENDED, made)
    (folder / GENERATOR).unlink(missing_ok=True)
    return made


def _advanced(
    path: Path, site: Site, config: RunConfig, step: int, others: Mapping[str, Tensor]
) -> State:
    """Return the state after a step; a step that was made already is not made again."""
    state = read(path, site.device)
    done = int(state.pop(_DONE)) if state else None
    if state is None or done not in (step - 2, step):
        raise UserError(
            f"client {site.card.client}: expected its generator after step {step - 2} of the exchange in {path}, found "
            f"{'none' if state is None else f'that after step {done}'}; start the run again"
        )
    return state if done == step else advanced(state, site, config, others)
