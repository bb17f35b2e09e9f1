"""What a client refuses of a server: noise, budget, repeated tasks and crafted models.

The configuration of a run and every message come from the server. A client trusts neither where
they would lower its noise: it keeps its own account of its answers (`Budget`), and enforces the
terms of its node (`admit`).

A server numbers the rounds and names the run: if it lies, it asks for round 1 without end, or has
crafted models validated until it knows single nodes. A client writes each task down before it
begins (`count_task`). A task with the same round and model is a repetition, after a lost answer or
an interrupted run; there may be as many of these as rounds. A run has one more validation than
rounds, for its final model, and two with personal models. If every client trains in every round, a
client also validates at most one more model than it has trained. A run has one final model, one
temperature, and one model beside which a client trains its own; after the final model it trains and
validates no other.

A sum over clients hides single rows only if the model makes it a sum of many. Where rows of the
first layer are parallel and biases go up in steps, differences of the updates of its units are
single rows of the data (Fowl et al. 2022, "Robbing the Fed"; Boenisch et al. 2021, "When the
Curious Abandon Honesty"). Units of honest models become parallel too, so a client looks at what
would leak: `shows_single_row` compares its own update with its own rows, and the client leaves out
a round that shows one. Another construction may pass, and only differential privacy bounds what
any model extracts (docs/security.md).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message
from torch import Tensor, nn
from torch.nn import functional as F

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.sections import PERSONAL
from dance_flwr.config.tree import RunConfig
from dance_flwr.disk import ledger
from dance_flwr.errors import UserError, disk_of
from dance_flwr.federation.client.client import Client, initial_model, shape_of
from dance_flwr.federation.flower import SECAGG_STATE, STATE_THRESHOLD
from dance_flwr.federation.node_config import NodeTerms, refuse_beyond, run_config_of, terms_of
from dance_flwr.federation.secagg.signatures import ledger_folder
from dance_flwr.federation.wire import keys, messages
from dance_flwr.federation.wire.tensors import state_of
from dance_flwr.fingerprint import model_fingerprint
from dance_flwr.methods import check_method
from dance_flwr.methods.upload_checks import model_fault, update_norm
from dance_flwr.nn.model import ModelShape, PlainModel, load_state
from dance_flwr.nn.moving import moved

_CLIENT_NOISE = ("distributed", "local")
_DELTA = 1e-5  # of `max-epsilon`, if that of the run is not smaller
_TOLERANCE = 1 + 1e-6  # sigma is computed from epsilon, and epsilon from sigma
TRAININGS = "training-counts.json"
_TRAININGS, _EXCHANGES, _VALIDATIONS = "trainings", "exchanges", "validations"
_OWN, _FINAL, _SEAL = "models for own ones", "final models", "temperatures"  # one per run
_KIND = {keys.TRAIN: _TRAININGS, keys.EXCHANGE: _EXCHANGES, keys.EVALUATE: _VALIDATIONS}
_KIND |= {keys.SEAL: _SEAL}
_TRAIN = (_TRAININGS, _EXCHANGES, _OWN)
# Kind -> digest of a task -> how often it was asked; of own models, the rounds of their training.
_Counts = dict[str, dict[str, int]]
State = Mapping[str, Tensor]
# Cosines: of the weights of two units that are compared, and of a row that their updates show.
_PARALLEL, _ROW = 0.9, 0.99
_SAME_DIRECTION = 1e-9  # of sin^2 between two updates
_SHARED = 3  # nodes
_BLOCK_ROWS = 4096
_ROUNDING = 1e-3  # of an initial model, between versions of torch


@dataclass(frozen=True, eq=False)
class Received:
    """A model as the server sent it; nobody changes its tensors, which clients share.

    Attributes
    ----------
    model_id : its `model_fingerprint`
    """

    state: Mapping[str, Tensor]
    model_id: str


def received(message: Message, record: str = keys.ARRAYS) -> Received:
    """Return a model that came with a message; the same object for the same bytes."""
    # By content: Python hashes a bytes object once, however many messages share it.
    arrays = messages.arrays_in(message, record).items()
    return _read(tuple((n, a.dtype, tuple(a.shape), a.stype, a.data) for n, a in arrays))


@lru_cache(maxsize=2)  # the clients of a round are sent the same: one to train, one to validate
def _read(arrays: tuple[tuple[str, str, tuple[int, ...], str, bytes], ...]) -> Received:
    record = {name: Array(kind, shape, of, data) for name, kind, shape, of, data in arrays}
    state = state_of(ArrayRecord(record))
    return Received(state, model_fingerprint(state))


@lru_cache(maxsize=2)  # as above: one copy to a GPU serves every client of a process
def on_device(model: Received, device: torch.device) -> State:
    """Return the tensors of a model on a device."""
    return moved(dict(model.state), device)


class BudgetError(UserError):
    """The account of a client refuses an answer; the text says nothing of its data."""


@dataclass(frozen=True)
class Budget:
    """The terms of a node, and its account."""

    terms: NodeTerms
    node_config: Mapping[str, Any]

    @cached_property
    def ledger(self) -> Path | None:
        """Folder of the node's ledgers; None in a simulation.

        With such a folder, the budget of a run is also that of all runs at this client.
        """
        return ledger_folder(self.node_config)

    def charge(self, config: RunConfig, data: ClientData, run: str) -> None:
        """Record the cost of an answer; nothing without noise of the client's own."""
        settings = config.privacy
        # Under `central` the server is trusted with the noise; noise from the run's seed can be
        # computed again, so that there is no epsilon to spend.
        if settings.dp not in _CLIENT_NOISE or settings.seeded:
            return
        from dance_flwr.federation.privacy.accounting import PrivacyAccount, epsilon_of
        from dance_flwr.federation.privacy.dp import noise_multiplier

        def fault(runs: Mapping[str, float]) -> str:
            # The smaller delta, as the same noise looks cheaper with a larger one.
            total, delta = self.terms.max_epsilon, min(settings.delta, _DELTA)
            # Why (docs/privacy.md): without a term of the node, the budget of the run bounds all
            # runs.
            if total == inf:
                total, delta = (settings.epsilon if self.ledger else inf), settings.delta
            spent = {
                f"for run {run}": (runs[run], settings.epsilon, settings.delta),
                "for all runs of this client": (sum(runs.values()), total, delta),
            }
            # Both bounds, as a run under another name starts from 0.
            for what, (cost, budget, at) in spent.items():
                if budget < inf and (epsilon := epsilon_of(cost, at)) > budget * _TOLERANCE:
                    return (
                        f"privacy budget: expected epsilon up to {budget:g} at delta {at:g} "
                        f"{what}, found {epsilon:.4g} with this answer; it was not sent. An "
                        f"operator who agrees to more sets {keys.MAX_EPSILON} in --node-config"
                    )
            return ""

        # Sigma from the settings by which this client draws its noise.
        try:
            PrivacyAccount(self.ledger or data.folder).spend(run, noise_multiplier(config), fault)
        except UserError as error:
            raise BudgetError(str(error)) from None


def admit(task: str, message: Message, context: Context) -> Budget:
    """Return the account for a request after checking it against the terms of the node.

    Parameters
    ----------
    task : as `task_of` returns it, or the type of another message

    Raises
    ------
    UserError : the run asks for more than the node allows or has less noise than it demands, the
        clipping norm is not above 0, the sum could end with fewer clients than the noise is for, or
        losses of personal models are asked for that the run does not have, or has under noise
    """
    config, terms = run_config_of(context), terms_of(context.node_config)
    # Terms first: a refusal then says nothing of the data.
    refuse_beyond(terms, config, messages.config_of(message).get(keys.ROUND, 0))
    # For every task, as no answer but an update has noise.
    _check_noise(task, config, terms)
    # Losses are exact sums over validation nodes, and training takes as long as all rounds.
    asked = messages.config_of(message).get(keys.PERSONALISE, False)
    if asked and (not PERSONAL[config.personal] or config.privacy.dp != "none"):
        raise UserError(
            f"{keys.PERSONALISE}: expected a run of personal models without differential privacy, "
            f"found personal = {config.personal}, privacy.dp = {config.privacy.dp}; this node does "
            "not take part"
        )
    if task in (keys.TRAIN, keys.EXCHANGE):
        if config.privacy.dp != "none":
            check_method(config)  # as at the server, which a client does not trust
        norm = messages.config_of(message).get(keys.CLIPPING_NORM)
        if norm is not None and not (isfinite(norm) and norm > 0):
            raise UserError(
                f"{keys.CLIPPING_NORM}: expected a finite number > 0 in a message to train, found "
                f"{norm!r}; such a norm would clip nothing"
            )
        if config.privacy.dp == "distributed":
            from dance_flwr.federation.privacy.dp import fewest_clients

            state: Mapping[str, Any] = context.state.config_records.get(SECAGG_STATE, {})
            # The threshold of the setup, not the one that the run's configuration promises.
            threshold: Any = state.get(STATE_THRESHOLD, 0)
            if threshold < (fewest := fewest_clients(config)):
                raise UserError(
                    f"privacy.dp = distributed: expected a sum of at least {fewest} clients, for "
                    "which this client's share of the noise is made, found a threshold of "
                    f"{threshold}"
                )
    return Budget(terms, context.node_config)


def _check_noise(task: str, config: RunConfig, terms: NodeTerms) -> None:
    minimum, settings = terms.min_noise_multiplier, config.privacy
    if not minimum and terms.max_epsilon == inf:
        return
    key = keys.MIN_NOISE_MULTIPLIER if minimum else keys.MAX_EPSILON
    # An exchange sends tensors without noise, whatever the run says of its updates.
    if task == keys.EXCHANGE or settings.dp not in _CLIENT_NOISE or settings.seeded:
        run = "an exchange" if task == keys.EXCHANGE else f"privacy.dp = {settings.dp}"
        run += " with noise from the run's seed" if settings.seeded else ""
        raise UserError(
            f"{key}: expected a run whose clients add noise of their own (privacy.dp = local or "
            f"distributed), found {run}; this node does not take part"
        )
    from dance_flwr.federation.privacy.dp import noise_multiplier

    if (sigma := noise_multiplier(config)) < minimum:
        raise UserError(
            f"{key}: expected privacy.noise-multiplier >= {minimum:g}, found {sigma:.4g}; this "
            "node does not take part"
        )


def count_task(
    message: Message, task: str, folder: Path, terms: NodeTerms, config: RunConfig
) -> None:
    """Record that a run trains, validates or ends here once more.

    Raises
    ------
    UserError : the node does not allow this task, and nothing was written; or the file is damaged
    """
    if task not in _KIND:
        return
    asked, digest, kind = messages.config_of(message), _digest(message, task), _KIND[task]
    run, final = str(asked[keys.RUN]), asked.get(keys.FINAL, False) and kind == _VALIDATIONS
    expected = (
        "how often runs have trained here; restore it from a copy, or delete it to count from "
        "nothing"
    )
    with disk_of(folder), ledger(folder / TRAININGS, {"runs": {}}, _counts, expected) as content:
        runs: dict[str, _Counts] = content["runs"]
        tasks = runs.setdefault(run, {})
        # All checks before it is written, as a refused task does not take place.
        new = kind != _SEAL and digest not in tasks.get(kind, {})
        if new and not final and _FINAL in tasks:
            raise UserError(
                f"run {run}: expected no more {kind} after its final model, found another; this "
                "node does not take part. Start it again under another name"
            )
        kinds = [kind, *[_FINAL] * final, *[_VALIDATIONS] * bool(asked.get(keys.VALIDATE, False))]
        for each in kinds:
            tasks.setdefault(each, {})[digest] = tasks.get(each, {}).get(digest, 0) + 1
        ends = final or asked.get(keys.PERSONALISE, False)
        if ends and kind == _VALIDATIONS and PERSONAL[config.personal]:
            from dance_flwr.federation.client.own_models import own_rounds

            tasks.setdefault(_OWN, {})[digest] = own_rounds(config)
        for each in kinds:
            if each != _FINAL:
                _refuse(run, runs, each, terms, config.client_fraction)


def _refuse(
    run: str, runs: dict[str, _Counts], kind: str, terms: NodeTerms, fraction: float
) -> None:
    for once in (_OWN, _FINAL, _SEAL):
        if (found := len(runs[run].get(once, ()))) > 1:
            raise UserError(
                f"run {run}: expected one of its {once}, found {found} with this one; this node "
                "does not take part. Start it again under another name"
            )
    tasks, extra = runs[run][kind], int(kind == _VALIDATIONS)
    repeated = sum(tasks.values()) - len(tasks)
    # Steps of an exchange are no rounds, and what bounds them is the node's number of trainings.
    rounds = inf if kind == _EXCHANGES else terms.max_rounds + extra
    # Each run has a final validation, and before it one of mixtures where models are personal.
    validated = terms.max_trainings + 2 * len(runs)
    checks = [
        # Repetitions have their own bound, or a server could ask for one round without end.
        (keys.MAX_ROUNDS, rounds, f"{kind} in run {run}", len(tasks)),
        (keys.MAX_ROUNDS, terms.max_rounds + extra, f"repeated {kind} in run {run}", repeated),
        (keys.MAX_TRAININGS, terms.max_trainings, "trainings in all runs", _every(runs, *_TRAIN)),
        (keys.MAX_TRAININGS, validated, "validations in all runs", _every(runs, _VALIDATIONS)),
    ]
    if extra and terms.counted and fraction == 1:
        what = f"validations in run {run}, one more than trainings"
        checks.append((keys.MAX_ROUNDS, len(runs[run].get(_TRAININGS, ())) + 1, what, len(tasks)))
    for term, maximum, what, count in checks:
        if count > maximum:
            raise UserError(
                f"{term}: expected at most {maximum:g} {what}, found {count} with this one; this "
                "node does not take part. An operator who agrees to more raises it in --node-config"
            )


def _every(runs: dict[str, _Counts], *kinds: str) -> int:
    return sum(sum(counts.get(kind, {}).values()) for counts in runs.values() for kind in kinds)


def _digest(message: Message, task: str) -> str:
    # Of the round and its model, which identify a task of a run; or of what stands for them.
    number = {keys.EXCHANGE: keys.STEP, keys.SEAL: keys.TEMPERATURE}.get(task, keys.ROUND)
    digest = hashlib.sha256(repr(messages.config_of(message).get(number)).encode())
    for record in (keys.ARRAYS, keys.DEPLOYED, keys.EXCHANGED):
        for name, array in message.content.array_records.get(record, {}).items():
            digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
            digest.update(array.data)
    # 128 bits: two models with one digest cost a server 2^64 tries.
    return digest.hexdigest()[:32]


def _counts(content: Any) -> dict[str, dict[str, _Counts]]:
    return {
        "runs": {
            str(run): {
                str(kind): {str(digest): int(count) for digest, count in tasks.items()}
                for kind, tasks in counts.items()
            }
            for run, counts in content["runs"].items()
        }
    }


def check_start(client: Client, start: Received, round_: int, max_change: float) -> float:
    """Check a start model; return the length to which the client's update is clipped.

    Raises
    ------
    UserError : the model has other tensors than the run; or it differs from the initial model of
        the seed in round 1, or later by more than `max_change`, unless the run adds noise
    """
    data, config = client.data, client.config
    shape = shape_of(data.text_dim, len(data.card.class_names), config)
    fault, distance, length = _against_seed(start, shape, config)
    if fault:
        raise UserError(f"start model: {fault}; this node does not take part")
    bound = max_change * length
    allowed = _ROUNDING * length if round_ == 1 else bound
    # Noise moves a model without a bound, and bounds by itself what any model extracts.
    if round_ > 1 and config.privacy.dp != "none":
        allowed = inf
    if distance > allowed:
        expected = "the initial model of the run's seed in round 1"
        if round_ > 1:
            expected = f"one within {bound:.3g} ({keys.MAX_CHANGE}) of the initial model"
        raise UserError(
            f"start model: expected {expected}, found one that differs by {distance:.3g}; this "
            "node does not take part"
        )
    return bound


def clipped(state: State, start: State, bound: float) -> State:
    """Return the trained model, with its update shortened to the bound if it is longer."""
    # Values that are not finite stay, for the checks of the upload. An update within the bound
    # keeps every bit.
    length = update_norm(state, start)
    if not bound < length < inf:
        return state
    from dance_flwr.federation.privacy.clipping import clip

    return clip(state, start, bound)[0]


@lru_cache(maxsize=2)  # as above
def _against_seed(
    start: Received, shape: ModelShape, config: RunConfig
) -> tuple[str, float, float]:
    """Return a fault of a model, its distance from the initial one, and the length of that."""
    _, seeds, length = _seed_model(shape, config)
    fault = model_fault(start.state, seeds)
    return fault, 0.0 if fault else update_norm(start.state, seeds), length


@lru_cache(maxsize=4)
def _seed_model(shape: ModelShape, config: RunConfig) -> tuple[nn.Module, State, float]:
    """Return a model to load others into, the initial state and its length."""
    model = initial_model(shape, config)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    zero = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    return model, state, update_norm(state, zero)


@torch.no_grad()
def shows_single_row(client: Client, start: State, state: State) -> bool:
    """Whether the first layer's updates of two near-parallel units span one row of the data.

    For units i, j with |cos(w_i, w_j)| > 0.9 and unit rows x of the network's inputs, this is
    |P_ij x| > 0.99 with the projection P_ij onto span(dw_i, dw_j), where fewer than three rows lie
    in that span. Only under masks: otherwise the server reads the upload itself.

    Parameters
    ----------
    start, state : the model before and after training
    """
    config, data = client.config, client.data
    shape = shape_of(data.text_dim, len(data.card.class_names), config)
    model, *_ = _seed_model(shape, config)
    # The first layer of a plug-in's network without a backbone is unknown.
    if not config.privacy.secure_aggregation or not isinstance(model, PlainModel):
        return False
    # Why on the host (decision 31): reading a single number from a GPU waits for it.
    load_state(model, start)
    weight = model.backbone.text_weight().clone()
    unit = F.normalize(weight, dim=1)
    first, second = ((unit @ unit.T).abs() > _PARALLEL).triu(1).nonzero().T
    if not len(first):
        return False
    load_state(model, {name: tensor.cpu() for name, tensor in state.items()})
    change = F.normalize((model.backbone.text_weight() - weight).double(), dim=1)
    cosine = (change[first] * change[second]).sum(1)
    # Two updates in one direction span no more than that.
    rest = (1 - cosine.square()).clamp(min=0)
    inverse = torch.where(rest > _SAME_DIRECTION, 1 / rest, 0)
    close = torch.zeros(len(first), dtype=torch.int64)
    inputs = data.inputs(data.graph, model.backbone)
    for block in torch.split(inputs, _BLOCK_ROWS):
        rows = block.float().cpu().reshape(-1, weight.size(1))
        along = F.normalize(rows.double(), dim=1) @ change.T
        beside = along[:, second] - cosine * along[:, first]
        close += (along[:, first].square() + beside.square() * inverse > _ROW**2).sum(0)
    # Rows that three nodes or more share say little of any one.
    return bool(((close > 0) & (close < _SHARED)).any())
