"""`compare`: the same federation with several methods and seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dance_flwr.api.federating import federate
from dance_flwr.api.inputs import ConfigLike, keys_of
from dance_flwr.api.result import check_package, frame
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.methods.contract import MethodSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def compare(
    graphs: TextGraph | Sequence[TextGraph] | str | Path,
    methods: Sequence[str | MethodSpec],
    seeds: Sequence[int] = (0,),
    config: ConfigLike = None,
) -> "tuple[DataFrame, Figure]":
    """Run every method with every seed; return a row per round, and curves of their means.

    Parameters
    ----------
    graphs, config : as for `federate`, without `out`, method and seed

    Raises
    ------
    UserError : as `federate`; pandas or Matplotlib is not installed

    Returns
    -------
    a frame with columns method, seed, round, val_accuracy and test_accuracy (of the run, the same
    in all of its rounds), and a figure of Matplotlib: a line per method, the range of seeds shaded
    """
    check_package("pandas", "compare")
    check_package("matplotlib", "compare")
    from matplotlib.figure import Figure

    rows: list[dict[str, Any]] = []
    for method in methods:
        for seed in seeds:
            keys = keys_of(config) | {"seed": seed}
            result = federate(graphs, keys, method=method, progress=False)
            name = result.config.method
            facts = {"method": name, "seed": seed, "test_accuracy": result.test_accuracy}
            rows += [
                {**facts, "round": row.round, "val_accuracy": row.val_accuracy}
                for row in result.history
            ]
    table, figure = frame(rows), Figure()
    axes = figure.subplots()
    for method, part in table.groupby("method", sort=False):
        curve = part.groupby("round")["val_accuracy"]
        axes.plot(curve.mean(), label=method)
        axes.fill_between(curve.mean().index, curve.min(), curve.max(), alpha=0.2)
    axes.set(xlabel="round", ylabel="accuracy on validation nodes")
    axes.legend()
    return table, figure
