"""Rules that select K labelled training nodes, and the methods that train on these cores."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.data.card import run_folder
from dance_flwr.data.text.usage import note_evidence
from dance_flwr.methods.contract import RoundInfo
from dance_flwr.methods.plain_method import LabelledGraph, PlainMethod, train_on
from dance_flwr.metrics import Report
from dance_flwr.nn.model import PlainModel
from dance_flwr.nn.propagation import operator
from dance_flwr.seeding import generator
from dance_flwr_rivals.condensation.client import client_quotas
from dance_flwr_rivals.condensation.graphs import spread
from dance_flwr_rivals.run_cache import cache_key, load_or_compute


def random_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` rows drawn uniformly without repetition; [count] int64."""
    return torch.randperm(len(points), generator=generator)[:count].to(points.device)


def herding_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_t = argmin ||mean - (x_1 + ... + x_t) / t||, without repetition (Welling 2009).

    The mean of the selected rows follows the mean of all; [count] int64, in this order.
    Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    # Greedy: each step takes the row that brings the mean of the selected ones nearest to that of
    # all.
    mean, total = points.mean(0), torch.zeros_like(points[0])
    selected: list[int] = []
    for step in range(1, count + 1):
        gap = (mean - (total + points) / step).square().sum(1)
        # Without repetition: a core has K different nodes.
        gap[selected] = float("inf")
        selected.append(int(gap.argmin()))
        total = total + points[selected[-1]]
    return torch.tensor(selected, dtype=torch.int64, device=points.device)


def k_center_rows(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """x_1 nearest to the mean, then x_t farthest from x_1, .., x_(t-1) (Gonzalez 1985).

    The greedy 2-approximation of the smallest radius that covers all rows, as in Sener and Savarese
    2018; [count] int64, in this order. Deterministic; ties go to the lower index.

    Parameters
    ----------
    points : [m, d], count <= m
    """
    # Starts at the row nearest to the mean, which needs no draw.
    selected = [int((points - points.mean(0)).square().sum(1).argmin())][:count]
    nearest = points.new_full((len(points),), float("inf"))
    while len(selected) < count:
        # Distance to the nearest center so far; the farthest row is the next center.
        nearest = torch.minimum(nearest, (points - points[selected[-1]]).square().sum(1))
        nearest[selected] = -1.0
        selected.append(int(nearest.argmax()))
    return torch.tensor(selected, dtype=torch.int64, device=points.device)


Rule = Callable[[Tensor, int, torch.Generator], Tensor]
RULES: dict[str, Rule] = {"random": random_rows, "herding": herding_rows, "k-center": k_center_rows}


def select_core(
    points: Tensor, labels: Tensor, quotas: Tensor, rule: Rule, generator: torch.Generator
) -> Tensor:
    """Select K_c nodes of every class by `rule`, in ascending order; [K] int64.

    Parameters
    ----------
    points : [n, d], the space in which distances are measured
    labels : [n] int64, -1 for nodes that must not be selected
    quotas : [C] int64
    """
    # An empty tensor first, so that `cat` has a type and a device where no class has a quota.
    selected = [torch.nonzero(labels < -1).flatten()]
    for number in torch.nonzero(quotas).flatten().tolist():
        nodes = torch.nonzero(labels == number).flatten()
        selected.append(nodes[rule(points[nodes], int(quotas[number]), generator)])
    return torch.cat(selected).sort().values


class SelectedCore(PlainMethod):
    """The plain network on a core that is selected once or anew in every round.

    Attributes
    ----------
    rule : a key of `RULES`
    rotates : whether every round selects another core
    """

    rule: ClassVar[str]
    rotates: ClassVar[bool] = False

    def train(
        self, model: PlainModel, data: ClientData, config: RunConfig, info: RoundInfo
    ) -> Report:
        """Minimise the mean cross-entropy of the core's nodes on the subgraph that they induce."""
        report = Report()
        with report.phase("nodes"):
            # 0 for a core of all rounds: a client that joins late selects the same one.
            moment = info.round if self.rotates else 0
            key = {"ratio": config.condensation_ratio, "rule": self.rule, "round": moment}
            key |= cache_key(data, config)
            arrays = load_or_compute(
                data, info.run, key, lambda: {"core": self.select(data, config, moment)}
            )
            core = arrays["core"]
        chunks = data.table.chunks_of.take(core).index.cpu().numpy()
        # The texts of a core are what it reads, so that tokens are counted as for DANCE.
        note_evidence(run_folder(data.folder, info.run), info.round, chunks)
        report.counts |= {"condensed-nodes": core.numel(), "evidence-supervised": core.numel()}
        report.counts |= {
            "evidence-chunks": len(chunks),
            "evidence-tokens": int(data.bank.tokens[chunks].sum()),
        }
        with report.phase("train"):
            induced = operator(
                model.backbone.operator, *data.training_graph.induced_edges(core), core.numel()
            )
            graph = LabelledGraph(data.features[core], induced, data.train_labels[core])
            report.loss = train_on(model, graph, config, info.round)
        return report

    def select(self, data: ClientData, config: RunConfig, moment: int = 0) -> Tensor:
        """Return the core, [K] int64 in ascending order."""
        quotas, client = client_quotas(data, config), data.card.client
        draws = generator(config.seed, f"{self.rule}-core", round_=moment, client=client)
        return select_core(self.points(data), data.train_labels, quotas, RULES[self.rule], draws)

    def points(self, data: ClientData) -> Tensor:
        """Return P^2 X, in which the rule measures distances; [n, d]."""
        hop = data.training_graph.operator("gcn")
        # The input of GCond's matching network, which needs no training; the public code measures
        # in the hidden space of a trained one.
        return spread(data.features, hop)[-1]


class RandomCore(SelectedCore):
    """Selects uniformly at random within each class."""

    rule = "random"

    def points(self, data: ClientData) -> Tensor:
        """Return X, as no distance is measured; [n, d]."""
        return data.features


class RotatingCore(RandomCore):
    """Selects as `RandomCore`, anew in every round; `state.npz` holds the last core."""

    rotates = True


class HerdingCore(SelectedCore):
    """Selects nodes whose running mean follows the mean of their class."""

    rule = "herding"


class KCenterCore(SelectedCore):
    """Selects nodes that cover their class: nearest to the mean, then farthest from the others."""

    rule = "k-center"
