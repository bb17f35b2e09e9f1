"""FedSage+ (Zhang et al., NeurIPS 2021): each client mends its graph with generated neighbours, then FedAvg.

Half of a client's validation nodes are hidden; from what the others lost, a generator learns how many neighbours a node
misses (dGen) and what they are like (fGen), first alone, then fGen with the gradients of the other clients. Generated
nodes then join the complete local graph, on which the plain network is trained and predicts.

Uploaded beside the model, before round 1: fGen's weights, latents z + N(0, I) of a batch of nodes with their counts,
and gradients of other clients' fGen. No feature leaves. That is no secrecy: the gradient of a batch with fewer nodes
than a layer has units gives its targets to whoever knows the batch, as does the server, which reads each gradient.

Deviations from paper and public codes:
- gradients are exchanged as the paper has it; its own code and OpenFGL read the other clients' features instead;
- fGen visits two of the other clients in an exchange (`fedsage.peers`), in turn, and their sum is scaled to all: a
  visit is 9 MB of weights and gradients and costs as much as a step;
- fGen's last hidden layer has 512 units (`fedsage.maker-dim`), the public code's 2048 for 1433 features scaled to 384;
- a step makes neighbours of a sample of the nodes (`fedsage.batch`) and there is one step per epoch, not one per 32
  nodes; targets are at most P neighbours, none of them a test node, and labels of hidden nodes are not read;
- edges run in both directions (in OpenFGL generated nodes change nothing), and neighbours are generated on the complete
  graph, where OpenFGL counts hidden ones twice;
- the encoder's input is layer-normalised; GCN where the paper samples for GraphSAGE, as in every method here.

Test accuracy of `fedsage` on Cora: 83.37 % in the DANCE paper, 88.09 % here.
Test accuracy of `fedsage` on CiteSeer: 75.12 % in the DANCE paper, 77.23 % here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dance_flwr import events
from dance_flwr.config import RunConfig
from dance_flwr.dance.model import PlainModel
from dance_flwr.dance.store import RunStore
from dance_flwr.errors import UserError
from dance_flwr.mending.graphs import Generated, mended_operator
from dance_flwr.mending.learning import State
from dance_flwr.mending.store import GENERATOR, MENDED, read, write
from dance_flwr.methods.base import MethodCard, RoundInfo, Uplink
from dance_flwr.methods.neighgen import (
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
from dance_flwr.methods.plain import PlainMethod, train_on
from dance_flwr.report import Report
from dance_flwr.seeding import seeded
from dance_flwr.site import LocalGraph, Site

_DONE = "exchanged"  # the last step that the generator has made


@dataclass(frozen=True)
class Mended:
    """A complete graph and its g generated nodes behind the n: features [n + g, F], operator of the backbone's kind."""

    features: Tensor
    operator: Tensor


_OPENED: WeakKeyDictionary[Site, dict[str, tuple[object, Mended]]] = WeakKeyDictionary()  # the last of each graph


class FedSage(PlainMethod):
    """The plain network on the mended graph, its own at each client."""

    uplink = Uplink.EACH
    card = MethodCard(
        condenses=False,
        trains_on="every labelled training node of the full local graph, mended with generated neighbours",
        leaves_client="model parameters; before round 1 a generator's weights, latents of nodes with the number of "
        "neighbours each misses, gradients of others' generators; counts, seconds; the server reads each client's",
        source="Zhang et al. 2021",
        server="fedsage",
    )

    def exchange(
        self, site: Site, config: RunConfig, info: RoundInfo, step: int, inbox: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Learn alone (step 0), take gradients of others' generators (odd), or step with the sum of one's own (even).

        The last step generates the neighbours; what it leaves in the client's folder is all that rounds need. A step
        that is asked again is answered alike.

        Raises
        ------
        UserError : the generator of the step before is not in the client's folder
        """
        if step % 2:
            return visited(site, config, inbox)
        folder, last = RunStore(site.folder, info.run).folder, step == 2 * config.fedsage.exchanges
        if step == 0:
            (folder / MENDED).unlink(missing_ok=True)  # of a start of this run that ended before its first round
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
            report.loss = train_on(model, mended.features, mended.operator, labels, config, info.round)
        return report

    @torch.no_grad()
    def predict(self, model: PlainModel, site: Site, config: RunConfig, info: RoundInfo) -> dict[str, Tensor]:
        """Predict every node by one pass over the mended graph."""
        model.eval()
        mended = mended_graph(model, site, config, info, WHOLE)
        logits = model.graph_logits(model.backbone(mended.features, mended.operator))[: site.num_nodes]
        return {"deployed": torch.softmax(logits, dim=1)}


def mended_graph(model: PlainModel, site: Site, config: RunConfig, info: RoundInfo, name: str) -> Mended:
    """Return a complete graph and the neighbours that the client generated for it in this run.

    A client without any, since it was away when generators were exchanged or has lost its folder, lets its generator
    learn again, alone: it depends on the run's seed only, not on the round.

    Parameters
    ----------
    name : which of `neighgen.graphs`
    """
    path, kind = RunStore(site.folder, info.run).folder / MENDED, model.backbone.operator
    graph = graphs(site)[name]
    if not config.fedsage.most:
        return _join(graph, nothing_generated(site), site, kind)
    found = None if path.is_file() else _alone(path, site, config)
    key = (path, path.stat().st_mtime_ns, kind)
    opened = _OPENED.setdefault(site, {})
    if name not in opened or opened[name][0] != key:
        found = found or read(path, site.device) or _alone(path, site, config)
        opened[name] = key, _join(graph, Generated(found[name + "owners"], found[name + "features"]), site, kind)
    return opened[name][1]


def _join(graph: LocalGraph, added: Generated, site: Site, kind: str) -> Mended:
    operator = mended_operator(kind, *graph.edges(), added.owners, site.num_nodes)
    return Mended(torch.cat([site.table.nodes, added.features]), operator)


def _alone(path: Path, site: Site, config: RunConfig) -> State:
    client = site.card.client
    events.emit("generator_alone", f"client {client}: its generator learns without other clients", client=client)
    with seeded(config.seed, "exchange", client=client):
        return _finish(path.parent, begun(site, config), site, config)


def _finish(folder: Path, state: State, site: Site, config: RunConfig) -> State:
    """Generate the neighbours, keep them and forget the generator."""
    made = generated(state, site, config)
    write(folder / MENDED, made)
    (folder / GENERATOR).unlink(missing_ok=True)
    return made


def _advanced(path: Path, site: Site, config: RunConfig, step: int, others: Mapping[str, Tensor]) -> State:
    """Return the state after a step; a step that was made already is not made again."""
    state = read(path, site.device)
    done = int(state.pop(_DONE)) if state else None
    if state is None or done not in (step - 2, step):
        raise UserError(
            f"client {site.card.client}: expected its generator after step {step - 2} of the exchange in {path}, found "
            f"{'none' if state is None else f'that after step {done}'}; start the run again"
        )
    return state if done == step else advanced(state, site, config, others)
