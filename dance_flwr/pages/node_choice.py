"""Choose the nodes that a page shows first, and with their evidence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dance_flwr.errors import UserError, counted

LOW_MARGIN = 0.2
RULE = (
    "Nodes with more of three signs come first: the answer is wrong, the readings disagree, the "
    f"lead over the second class is below {LOW_MARGIN:g} (barely). Then the smaller lead."
)


@dataclass(frozen=True)
class NodeSigns:
    """Signs, for each of n nodes, that its prediction is worth a look.

    Attributes
    ----------
    predicted : [n] int64; margin : [n] float32, between the two best classes
    wrong : [n] bool, where the label is known; disagree : [n] bool, a view predicts another class
    """

    predicted: NDArray[np.int64]
    margin: NDArray[np.float32]
    wrong: NDArray[np.bool_]
    disagree: NDArray[np.bool_]

    @classmethod
    def of(cls, views: dict[str, NDArray[np.float32]], labels: NDArray[np.int64]) -> "NodeSigns":
        """Compare the [n, C] probabilities of "deployed" with labels and with the other views."""
        deployed = views["deployed"]
        predicted = deployed.argmax(axis=1)
        two = np.sort(deployed, axis=1)[:, -2:]
        others = [probs.argmax(axis=1) != predicted for name, probs in views.items()]
        return cls(
            predicted,
            # With one class there is no second.
            two[:, -1] - two[:, 0] if two.shape[1] > 1 else two[:, 0],
            (labels >= 0) & (predicted != labels),
            np.any(others, axis=0),
        )

    def headline(self) -> str:
        """Return how many predictions need a look, and why.

        Examples
        --------
        >>> views = {"deployed": np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)}
        >>> NodeSigns.of(views, np.array([1, 0])).headline()
        '1 of 2 predictions needs a look: 1 wrong, 0 with readings that disagree, 0 barely decided'
        """
        reasons = (self.wrong, self.disagree, self.margin < LOW_MARGIN)
        look = int(np.any(reasons, axis=0).sum())
        words = ("wrong", "with readings that disagree", "barely decided")
        why = [f"{int(of.sum()):,} {word}" for of, word in zip(reasons, words, strict=True)]
        need = "needs" if look == 1 else "need"
        return (
            f"{look:,} of {counted(len(self.margin), 'prediction')} {need} a look: {', '.join(why)}"
        )

    def order(self) -> NDArray[np.int64]:
        """Return all nodes by `RULE`; [n] int64, ties in the order of the data."""
        signs = self.wrong.astype(int) + self.disagree + (self.margin < LOW_MARGIN)
        return np.lexsort((self.margin, -signs))


def numbers_of(entries: Sequence[str], ids: Sequence[str], owner: str) -> NDArray[np.int64]:
    """Return the numbers of the nodes that `--nodes` names: ids, or several with commas between.

    Parameters
    ----------
    owner : whose nodes they are, for errors

    Raises
    ------
    UserError : there is no node of that id
    """
    number = {name: place for place, name in enumerate(ids)}
    names: list[str] = []
    for entry in entries:
        names += [entry] if entry in number else entry.split(",")  # an id may contain commas
    for name in names:
        if name not in number:
            raise UserError(f"--nodes: expected ids of nodes of {owner}, found {name!r}")
    return np.array([number[name] for name in dict.fromkeys(names)], np.int64)
