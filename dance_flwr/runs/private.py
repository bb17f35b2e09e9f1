"""Whether a run under differential privacy works, where it may be known.

Its server counts no node, so that there is no accuracy by round. Known are the losses that the
history has, what was spent, and on one machine what each site measured for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dance_flwr.federation.client.measured import Measured

_ROUNDS, _SITES = 8, 10  # that are shown


@dataclass(frozen=True)
class Private:
    """What is known of a run under differential privacy.

    Attributes
    ----------
    losses : round and training loss, of the rounds whose loss is known
    budget, epsilon : of training nodes, that may be spent, and that was; None = no round has ended
    withheld : whether clients leave validation and test nodes out of their counts
    sites : what each measured at the end, in `files`; `files` is "" before the end, and where the
        sites are other machines
    elsewhere : whether they are, and the run has ended
    """

    budget: float
    withheld: bool
    epsilon: float | None = None
    losses: Sequence[tuple[int, float]] = ()
    sites: Sequence[Measured] = field(default_factory=list)
    files: str = ""
    elsewhere: bool = False

    def rows(self) -> list[tuple[str, str]]:
        """Return all of it, as names and texts."""
        rows = [("loss", self._losses())] if self.losses else []
        if self.epsilon is not None:
            spent = f"{self.epsilon:.4g} of {self.budget:g} spent, of training nodes"
            rows.append(("epsilon", spent))
        if self.sites:
            rows.append(("sites", f"each measured for itself, in no message: {self.files}"))
        elif self.elsewhere:
            rows.append(("sites", "each sees what it measured with `dance-flwr site results`"))
        rows += [(f"client {site.client}", str(site)) for site in self.sites[:_SITES]]
        if more := self.sites[_SITES:]:
            rows.append(("", f"and {len(more):,} more"))
        return rows

    def _losses(self) -> str:
        first, last = self.losses[0], self.losses[-1]
        step = -(-len(self.losses) // _ROUNDS)
        shown = [*self.losses[:-1:step], last]
        text = ", ".join(f"{loss:.4g}" for _, loss in shown)
        numbers = ", ".join(str(round_) for round_, _ in shown)
        rose = "; it rose" if last[1] > first[1] else ""
        return f"{text} in round{'s' * (len(shown) > 1)} {numbers}{rose}"
