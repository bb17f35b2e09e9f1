"""The registry of experiments and analyses: one file each, one line here; imported only when asked
for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from dance_flwr.experiments.cells import Experiment

__all__ = ["ANALYSES", "EXPERIMENTS", "Listed", "attribute", "get_experiment"]


@dataclass(frozen=True)
class Listed:
    """One experiment of the registry.

    Attributes
    ----------
    where : "module:attribute" of its `Experiment`, in this package
    line : what it is, in one line, for `dance-flwr experiment --help`
    """

    where: str
    line: str


EXPERIMENTS: dict[str, Listed] = {
    "main-table": Listed(
        "main_table:EXPERIMENT", "accuracy of every method at each condensation ratio"
    ),
    "ablation": Listed("ablation:EXPERIMENT", "DANCE without topology, text or node condensation"),
    "refresh-study": Listed(
        "refresh_study:EXPERIMENT", "refresh core and text, one of them, or neither"
    ),
    "convergence": Listed("convergence:EXPERIMENT", "validation accuracy by round"),
    "hyper": Listed("hyper:EXPERIMENT", "evidence budgets, mix, alpha and beta"),
    "clients": Listed("clients:EXPERIMENT", "3, 5, 10 and 20 clients"),
    "backbone": Listed("backbone:EXPERIMENT", "graph backbones"),
    "non-iid": Listed("non_iid:EXPERIMENT", "ways to divide the graph among clients"),
    "runtime": Listed(
        "runtime:EXPERIMENT", "seconds per round and phase, as ratios to fedavg-full"
    ),
    "tokens": Listed("tokens:EXPERIMENT", "text handled per condensed node against the full text"),
    "settings": Listed(
        "settings:EXPERIMENT", "what the harness's own settings change, for both sides alike"
    ),
    "privacy": Listed(
        "privacy:EXPERIMENT", "accuracy over noise on features and over epsilon of the updates"
    ),
    "faithfulness": Listed(
        "faithfulness:EXPERIMENT", "deletion, insertion, sufficiency and compactness of evidence"
    ),
    "complexity": Listed(
        "complexity:EXPERIMENT", "measured growth of time and kept bytes with graph and core"
    ),
    "attacks": Listed(
        "attacks:EXPERIMENT", "what uploads and means give away of training nodes and labels"
    ),
}

# name -> "module:function" in this package; function(run_folder, config, partition_folder) ->
# JSON-able dict
ANALYSES: dict[str, str] = {
    "faithfulness": "faithfulness:analyse",
}


def get_experiment(name: str) -> "Experiment":
    """Return the experiment of this name, imported only now.

    Raises
    ------
    UserError : there is no such experiment; the message lists the choices
    """
    if name not in EXPERIMENTS:
        raise UserError(f"experiment: expected one of {', '.join(EXPERIMENTS)}, found {name!r}")
    return attribute(EXPERIMENTS[name].where)  # type: ignore[no-any-return]


def get_analysis(name: str) -> Callable[..., dict[str, Any]]:
    """Return the analysis of this name: function(run_folder, config, partition_folder) -> dict.

    Raises
    ------
    UserError : there is no such analysis; the message lists the choices
    """
    if name not in ANALYSES:
        raise UserError(f"analysis: expected one of {', '.join(ANALYSES)}, found {name!r}")
    return attribute(ANALYSES[name])  # type: ignore[no-any-return]


def attribute(where: str) -> Any:
    """Return what "module:attribute" names; a module without dots is one of this package.

    Raises
    ------
    UserError : there is no such module or attribute
    """
    module, _, name = where.partition(":")
    path = module if "." in module else f"{__name__}.{module}"
    try:
        return getattr(import_module(path), name)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != path:
            raise
        raise UserError(f"expected {name!r} in module {path}, found none") from None
