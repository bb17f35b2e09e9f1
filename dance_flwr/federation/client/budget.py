"""Check the differential privacy of a request at a client, and charge its answer to an account.

The configuration of a run and every message come from the server. A client believes neither where
they would lower the noise that it adds: it counts for itself what it has answered, and holds a run
to the terms of its node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from dance_flwr.client_data.client_data import ClientData
from dance_flwr.config.tree import RunConfig
from dance_flwr.errors import UserError
from dance_flwr.federation.flower import SECAGG_STATE
from dance_flwr.federation.node_config import NodeTerms, refuse_beyond, run_config_of, terms_of
from dance_flwr.federation.privacy.accounting import PrivacyAccount, epsilon_of
from dance_flwr.federation.privacy.dp import fewest_clients, noise_multiplier
from dance_flwr.federation.secagg.signing import ledger_folder
from dance_flwr.federation.secagg.stage_checks import THRESHOLD
from dance_flwr.federation.wire import keys, messages
from dance_flwr.methods import check_method

_CLIENT_NOISE = ("distributed", "local")
_DELTA = 1e-5  # of `max-epsilon`, if that of the run is not smaller
_TOLERANCE = 1 + 1e-6  # sigma is computed from epsilon, and epsilon from sigma


@dataclass(frozen=True)
class Budget:
    """The account of one request to train.

    Attributes
    ----------
    terms : of the node
    node_config : of the node
    """

    terms: NodeTerms
    node_config: Mapping[str, Any]

    @cached_property
    def ledger(self) -> Path | None:
        """Folder of the node's ledgers; None in a simulation.

        Where there is one, the budget of the run is also that of all runs at this client.
        """
        return ledger_folder(self.node_config)

    def charge(self, config: RunConfig, data: ClientData, run: str) -> None:
        """Write down that an answer will leave; nothing without noise of the client's own."""
        settings = config.privacy
        # Under `central` the server adds the noise and is trusted with it; noise from the run's
        # seed can be computed again, so that there is no epsilon to spend.
        if settings.dp not in _CLIENT_NOISE or settings.seeded:
            return

        def fault(runs: Mapping[str, float]) -> str:
            # The smaller delta: with a larger one from the run, the same noise would look cheaper.
            total, delta = self.terms.max_epsilon, min(settings.delta, _DELTA)
            # Why (docs/privacy.md): without a term of the node, the budget of the run bounds all
            # runs.
            if total == inf:
                total, delta = (settings.epsilon if self.ledger else inf), settings.delta
            spent = {
                f"for run {run}": (runs[run], settings.epsilon, settings.delta),
                "for all runs of this client": (sum(runs.values()), total, delta),
            }
            # Both bounds: a run under another name starts from 0, the sum over all runs does not.
            for what, (cost, budget, at) in spent.items():
                if budget < inf and (epsilon := epsilon_of(cost, at)) > budget * _TOLERANCE:
                    return (
                        f"privacy budget: expected epsilon up to {budget:g} at delta {at:g} "
                        f"{what}, found {epsilon:.4g} with this answer; it was not sent. An "
                        f"operator who agrees to more sets {keys.MAX_EPSILON} in --node-config"
                    )
            return ""

        # Sigma as this client computes it, from the settings by which it draws its noise.
        PrivacyAccount(self.ledger or data.folder).spend(run, noise_multiplier(config), fault)


def admit(task: str, message: Message, context: Context) -> Budget:
    """Return the account of a request after checking what it asks for.

    Parameters
    ----------
    task : as `task_of` returns it

    Raises
    ------
    UserError : the run asks for more than the node allows, has less noise than it demands, the norm
        of updates is no number above 0, or the sum could end with fewer clients than the noise is
        made for
    """
    config, terms = run_config_of(context), terms_of(context.node_config)
    # Terms first: they need no data, and a refusal then says nothing of them.
    refuse_beyond(terms, config, messages.config_of(message).get(keys.ROUND, 0))
    # Of every task: counts of a validation have no noise either, unless the run withholds them.
    _check_terms(task, config, terms)
    if task in (keys.TRAIN, keys.EXCHANGE):
        if config.privacy.dp != "none":
            # The server has checked this as well, but a client believes nothing that lowers its
            # noise.
            check_method(config)
        _check_norm(messages.config_of(message).get(keys.CLIPPING_NORM))
        if config.privacy.dp == "distributed":
            _check_sum(config, context)
    return Budget(terms, context.node_config)


def _check_terms(task: str, config: RunConfig, terms: NodeTerms) -> None:
    """Refuse less noise than the operator demands."""
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
    if (sigma := noise_multiplier(config)) < minimum:
        raise UserError(
            f"{key}: expected privacy.noise-multiplier >= {minimum:g}, found {sigma:.4g}; this "
            "node does not take part"
        )


def _check_norm(norm: Any) -> None:
    if norm is not None and not (isfinite(norm) and norm > 0):
        raise UserError(
            f"{keys.CLIPPING_NORM}: expected a finite number > 0 in a message to train, found "
            f"{norm!r}; such a norm would clip nothing"
        )


def _check_sum(config: RunConfig, context: Context) -> None:
    """Refuse a sum that may end with fewer clients than the client's share of noise is made for."""
    state: Mapping[str, Any] = context.state.config_records.get(SECAGG_STATE, {})
    # The threshold that was set up, not the one that the run's configuration promises.
    threshold: Any = state.get(THRESHOLD, 0)
    if threshold < (fewest := fewest_clients(config)):
        raise UserError(
            f"privacy.dp = distributed: expected a sum of at least {fewest} clients, for which "
            f"this client's share of the noise is made, found a threshold of {threshold}"
        )
