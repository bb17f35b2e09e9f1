"""Alg. 1, client side: what a round refreshes before it trains.

A round is `refresh`, then `training.train_round`; a caller may write packs of what was refreshed
between the two. A round reads its core of at most K_b nodes, their neighbours and their evidence;
all n nodes are read at a core refresh only.
"""

import logging
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dance_flwr.client_data.validated import validated_nodes
from dance_flwr.config.tree import RunConfig
from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.inference import condense_in_blocks, select_for_validation, trained_prediction
from dance_flwr.dance.nodes import condense_nodes, rounds_per_condensation
from dance_flwr.dance.passes import DanceClient, embed, plain_pass_in_blocks, pool_of
from dance_flwr.dance.plan import Condensation, Plan
from dance_flwr.dance.queue import Queue
from dance_flwr.dance.selection import Padded, Selection
from dance_flwr.dance.state import (
    CONDENSATION,
    PLAN,
    STATIC,
    VALIDATION,
    ClientState,
    RunFolder,
    due,
)
from dance_flwr.dance.text import condense_text, reweigh
from dance_flwr.dance.topology import Edges, core_edges
from dance_flwr.metrics import Report
from dance_flwr.nn.moving import HOST, moved
from dance_flwr.seeding import generator

LOG = logging.getLogger("flwr")
# Why a limit (decision 16): evidence and edges of all cores of a plan are computed at once.
_MAX_NODES = 4096  # of one selection: about 4096 * 50 rows of h floats


@dataclass(frozen=True)
class ClientRound:
    """One round of one client, and its costs so far.

    Attributes
    ----------
    client : the model as the server sent it (omega^(t-1)), at the client's training graph
    folder : of the run at the client
    config : of the run
    number : t, from 1
    report : seconds, counts and the loss of the round
    """

    client: DanceClient
    folder: RunFolder
    config: RunConfig
    number: int
    report: Report = field(default_factory=Report)

    def draws(self, purpose: str) -> torch.Generator:
        """Return the generator of this client, round and purpose."""
        number = self.client.data.card.client
        # Why the round and the purpose: a repeated round repeats its draws, and a draw that is
        # added for one purpose changes none of another.
        return generator(self.config.seed, purpose, round_=self.number, client=number)


@dataclass(frozen=True)
class Refreshed:
    """What a round trains on, and the state to save after it.

    Attributes
    ----------
    state : of the client
    evidence : of this round's core, on the host as all that follows
    edges : of its condensed graph
    mass : [K] number of nodes that each node of the core stands for; None = all count the same
    selected : if this round made the plan: g_v, [m, h], of its nodes, and their selection with all
        candidates; None = an earlier round made it
    client : that condensed and selected
    """

    state: ClientState
    evidence: Padded
    edges: Edges
    mass: Float[Tensor, "K"] | None
    selected: tuple[Float[Tensor, "m h"], Selection] | None
    client: DanceClient


def refresh(now: ClientRound) -> Refreshed:
    """Alg. 2 to 4, where they are due: condense nodes, select evidence, rebuild the edges.

    They use the model as the server sent it. Repeating a round repeats its result.
    """
    state, condensation, plan = _load(now)
    if plan is None or _condensation_due(now, state):
        now = replace(now, client=now.client.deciding())
        condensation = moved(condensation, now.client.data.device)
    # Alg. 1, node condensation. The old plan goes with it: its cores are those of the queue before.
    if _condensation_due(now, state):
        condensation, plan = _condense(now, state, condensation), None
    # Alg. 1, text condensation and topology reconstruction, for the coming cores too (decision 5).
    turn, selected = state.next_turn, None
    if plan is None:
        assert condensation is not None
        plan, selected = _select(now, state, condensation)
    place, evidence = turn - plan.first, plan.padded(turn)
    state.core = plan.cores[place]
    if selected is not None or state.turn == 0 or state.moves:  # the core is not that of before
        now.report.counts |= evidence.counts(now.client.data.bank.tokens)
    state.turn += 1
    mass = None if plan.mass is None else plan.mass[place]
    return Refreshed(state, evidence, plan.edges[place], mass, selected, now.client)


def _load(now: ClientRound) -> tuple[ClientState, Condensation | None, Plan | None]:
    """Return the state before this round, and what the round reads of its files.

    The plan is None if the round has to select, and the condensation if it does not. A state whose
    files are lost is a fresh one, with a warning.
    """
    every = now.client.settings.text_refresh_every
    # Why the state before this round: a round that is repeated starts where it started.
    state = now.folder.load(HOST, before=now.number)
    lost = not state.round and now.folder.lost(now.number)
    condensation = plan = None
    selects = every == 1 or due(state.text_round, every, now.number)
    if state.plan_round and not selects and not _condensation_due(now, state):
        plan = now.folder.read(PLAN, state.plan_round, Plan, HOST)
        lost = plan is None
        if plan is not None and not plan.covers(state.next_turn):
            plan = None
    # Why only where it is needed (decision 16): it has an entry per node, and an ordinary round
    # costs what its core costs.
    if state.core_round and plan is None and not lost:
        condensation = now.folder.read(CONDENSATION, state.core_round, Condensation, HOST)
        lost = condensation is None
    # Why a fresh state and no error (decision 20): a damaged state counts as lost, and what it held
    # can be selected again.
    if lost:
        _warn(now, "the core")
        state = ClientState()
    state.before, state.round = state.round, now.number
    return state, condensation, plan


def _warn(now: ClientRound, lost: str) -> None:
    LOG.warning(
        "client %d: expected the state of a round before %d in %s, found none; either this is "
        "the client's first round, or the folder was lost: %s is selected again",
        *(now.client.data.card.client, now.number, now.folder.folder, lost),
    )


def _condensation_due(now: ClientRound, state: ClientState) -> bool:
    settings, ratio = now.client.settings, now.config.condensation_ratio
    # In inductive mode nodes of the test split are not in V while a client trains.
    nodes, every = now.client.graph.num_visible, settings.core_refresh_every
    every = rounds_per_condensation(nodes, ratio, settings.batch_nodes, every)
    return due(state.core_round, every, now.number)


def _condense(now: ClientRound, state: ClientState, last: Condensation | None) -> Condensation:
    """Alg. 2: read all n nodes, and fill the queue of the next rounds.

    Parameters
    ----------
    last : the condensation before; None = there was none
    """
    client, report, device = now.client, now.report, now.client.data.device
    # Why of all earlier condensations: the coverage penalty counts every core that had the node.
    times = torch.zeros(client.data.num_nodes, dtype=torch.int64, device=device)
    if last is not None:
        times = last.times_after(state.turn)
    with report.phase("forward"):
        # Alg. 2, forward (once): z_v, p(y | v), pi_v and u_v of all n nodes.
        plain = plain_pass_in_blocks(client)
        prediction = trained_prediction(client, plain)
    with report.phase("nodes"):
        pool = pool_of(client, times)
        draws = now.draws("prototypes")
        ratio = now.config.condensation_ratio
        queue = condense_nodes(prediction, pool, client.settings, ratio, draws)
    with report.phase("text"):
        # Why now (decision 16): validations use this evidence until the next condensation, so that
        # none of them selects evidence or passes over the graph.
        nodes = validated_nodes(client.data, now.config)
        validation = select_for_validation(client, nodes, plain, prediction.difficulty)
    condensation = Condensation(times, prediction.difficulty, queue)
    with report.phase("packs"):
        now.folder.write(CONDENSATION, now.number, condensation)
        if validation is not None:
            now.folder.write(VALIDATION, now.number, validation)
    state.core_round, state.turn, state.moves = now.number, 0, queue.moves
    return condensation


def _select(
    now: ClientRound, state: ClientState, condensation: Condensation
) -> tuple[Plan, tuple[Float[Tensor, "m h"], Selection]]:
    """Alg. 3 and 4 for the coming cores; return their plan, and the selection with its g_v."""
    client, settings = now.client, now.client.settings
    cores = coming_cores(condensation.queue, state, settings, now.config.rounds)
    # A single core is distinct and ascending already.
    nodes = cores[0] if len(cores) == 1 else torch.unique(cores)
    # Alg. 3. Without gradients: `weighing` computes the weights again in training.
    with now.report.phase("text"), torch.inference_mode():
        if settings.text_refresh_every:
            state.text_round = now.number
            hidden, selection = select_evidence(client, nodes, condensation.difficulty)
        else:
            static = _select_once(now, state, condensation.difficulty)
            hidden = embed(client, nodes)
            # The candidates are frozen, not their weights, which follow the newest model.
            selection = reweigh(client, hidden, static.take(nodes))
    # Alg. 4, with the evidence that it rests on (decision 19).
    with now.report.phase("topology"), torch.inference_mode():
        edges = core_edges(client, hidden, selection, cores)
    plan = Plan(state.next_turn, cores, selection, edges, condensation.queue.mass_of(cores))
    # Under "candidates" training also weighs what was rejected.
    if settings.trained_evidence == "selected":
        plan = plan.rounded()
    # A plan that no other round reads is not written.
    state.plan_round = 0 if settings.text_refresh_every == 1 else now.number
    if state.plan_round:
        with now.report.phase("packs"):
            now.folder.write(PLAN, now.number, plan)
    # Why on the host (decision 31): sizes of its rows decide what comes next, and each of them that
    # is read of a GPU is a wait.
    return moved(plan, HOST), (hidden, selection)


def coming_cores(
    queue: Queue, state: ClientState, settings: DanceConfig, rounds: int
) -> Int64[Tensor, "T K"]:
    """Return this round's core and those until the next text refresh, at most 4096 nodes in all;
    [T, K].

    Parameters
    ----------
    rounds : of the run
    """
    every, count = settings.text_refresh_every, 1
    if every > 1 and queue.moves:
        # Refreshes are due in rounds 1, 1 + every, ..., whatever round this client selects in, and
        # no core is needed after the last round.
        left = min(every - (state.round - 1) % every, rounds - state.round + 1)
        count = max(1, min(left, _MAX_NODES // max(1, int(queue.quotas.sum()))))
    return queue.cores(state.next_turn, count)


@torch.no_grad()
def select_evidence(
    client: DanceClient, nodes: Int64[Tensor, "m"], difficulty: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "m h"], Selection]:
    """Alg. 3 on the client's graph; return g_v of these distinct nodes, and their evidence."""
    hidden = embed(client, nodes)
    return hidden, condense_text(client, nodes, hidden, difficulty)


def _select_once(now: ClientRound, state: ClientState, difficulty: Float[Tensor, "n"]) -> Selection:
    """Return the evidence of all nodes that was selected in the client's first round, frozen.

    It also covers later cores; its weights are those of the newest model.
    """
    client, device = now.client, now.client.data.device
    if state.text_round:
        static = now.folder.read(STATIC, state.text_round, Selection, device)
        if static is not None:
            return static
        _warn(now, "evidence")
    # Why all nodes (decision 5): evidence is selected once, and later cores have other nodes.
    hidden = plain_pass_in_blocks(client).hidden
    blocks = condense_in_blocks(client, client.everyone, hidden, difficulty)
    static = Selection.stack([block.frozen() for block in blocks])
    static = replace(static, context=static.context[:, :0])  # weighed anew, so c_v is not read
    now.folder.write(STATIC, now.number, static)
    state.text_round = now.number
    return static
