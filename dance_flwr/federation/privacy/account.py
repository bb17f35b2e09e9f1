"""Account of the privacy that a client has spent, in a file of its ledgers.

The server counts the rounds of a run; a server that lies counts wrong, or starts a run again. So a
client writes down every answer that cost it something before it sends it, over all runs. Gaussian
mechanisms of multipliers sigma_1, sigma_2, .. together are exactly one of multiplier
(sum_i sigma_i^-2)^-1/2 (Dong, Roth and Su 2022, corollary 3.3): one number per run is the account.
"""

import json
from collections.abc import Callable, Mapping
from math import isfinite, sqrt
from pathlib import Path

from dance_flwr.disk import atomic_file, private_lock
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.accounting import epsilon_spent

ACCOUNT = "privacy-account.json"
_SECONDS = 60.0  # to wait for another process, which holds the lock for milliseconds


def epsilon_of(cost: float, delta: float) -> float:
    """Return the epsilon of answers whose sigma^-2 sum to `cost`; 0 for none."""
    return epsilon_spent(1 / sqrt(cost), 1.0, 1, delta) if cost else 0.0


class PrivacyAccount:
    """The account of one client: run -> sum of sigma^-2 over its answers.

    Parameters
    ----------
    folder : of the client's ledgers
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ACCOUNT

    def spend(
        self, run: str, noise_multiplier: float, allowed: Callable[[Mapping[str, float]], str]
    ) -> None:
        """Write down an answer with noise sigma; call it before the answer is sent.

        The file is on the device when this returns. Processes take turns.

        Parameters
        ----------
        allowed : receives the account with this answer; returns why it is too much, else ""

        Raises
        ------
        UserError : it is too much, and nothing was written; or the file is damaged
        """
        # Written before the answer leaves: a crash between the two costs budget, never privacy.
        with private_lock(self._path.with_name(f".{ACCOUNT}.lock"), timeout=_SECONDS):
            runs = self.read()
            # Squares of inverse multipliers add up over rounds and runs, epsilons do not.
            runs[run] = runs.get(run, 0.0) + noise_multiplier**-2
            if fault := allowed(runs):
                raise UserError(fault)
            with atomic_file(self._path, lasting=True) as file:
                file.write((json.dumps({"runs": runs}, indent=1) + "\n").encode())

    def read(self) -> dict[str, float]:
        """Return the account; empty before the first answer."""
        try:
            runs = json.loads(self._path.read_text("utf-8"))["runs"]
            account = {str(run): float(cost) for run, cost in runs.items()}
            # A negative cost would give budget back.
            if not all(isfinite(cost) and cost >= 0 for cost in account.values()):
                raise ValueError("costs that are not numbers from 0")
        except FileNotFoundError:
            return {}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self._path}: expected what this client has spent of its privacy, found a "
                f"damaged file ({error}); restore it from a copy. Without it nobody knows what was "
                "spent: delete it only to start from nothing"
            ) from None
        return account
