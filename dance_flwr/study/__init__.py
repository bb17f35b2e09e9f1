"""The experiments and analyses, by name; each is imported when it is used.

Another package adds an experiment through an entry point:

    [project.entry-points."dance_flwr.experiments"]
    my-study = "my_package.my_study:EXPERIMENT"
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dance_flwr.config.plugins import Registry, resolve
from dance_flwr.errors import UserError

if TYPE_CHECKING:
    from dance_flwr.study.engine.cells import Experiment

__all__ = [
    "ANALYSES",
    "EXPERIMENTS",
    "get_analysis",
    "get_experiment",
    "get_measure",
    "summary",
]

EXPERIMENTS = Registry(
    "dance_flwr.experiments",
    "experiment",
    {
        "main-table": "dance_flwr.study.protocols.main_table:EXPERIMENT",
        "ablation": "dance_flwr.study.protocols.ablation:EXPERIMENT",
        "refresh-study": "dance_flwr.study.protocols.refresh:EXPERIMENT",
        "convergence": "dance_flwr.study.protocols.convergence:EXPERIMENT",
        "hyper": "dance_flwr.study.protocols.hyper:EXPERIMENT",
        "clients": "dance_flwr.study.protocols.clients:EXPERIMENT",
        "backbone": "dance_flwr.study.protocols.backbone:EXPERIMENT",
        "non-iid": "dance_flwr.study.protocols.non_iid:EXPERIMENT",
        "runtime": "dance_flwr.study.protocols.runtime:EXPERIMENT",
        "tokens": "dance_flwr.study.protocols.tokens.protocol:EXPERIMENT",
        "settings": "dance_flwr.study.protocols.settings:EXPERIMENT",
        "regimes": "dance_flwr.study.protocols.regimes.protocol:EXPERIMENT",
        "privacy": "dance_flwr.study.protocols.privacy:EXPERIMENT",
        "faithfulness": "dance_flwr.study.protocols.faithfulness.protocol:EXPERIMENT",
        "complexity": "dance_flwr.study.protocols.complexity.protocol:EXPERIMENT",
        "attacks": "dance_flwr.study.protocols.attacks.protocol:EXPERIMENT",
    },
)

# For `dance-flwr experiment --help`, which imports no experiment.
_SUMMARIES = {
    "main-table": "accuracy of every method at each condensation ratio",
    "ablation": "DANCE without topology, text or node condensation",
    "refresh-study": "refresh core and text, one of them, or neither",
    "convergence": "validation accuracy by round",
    "hyper": "evidence budgets, mix, alpha and beta",
    "clients": "3, 5, 10 and 20 clients",
    "backbone": "graph backbones",
    "non-iid": "ways to divide the graph among clients",
    "runtime": "seconds per round and phase, as ratios to fedavg-full",
    "tokens": "text processed per condensed node, compared with the full text",
    "settings": "what the harness's own settings change, for both methods alike",
    "regimes": "few labels, skew, foreign text and edges, small cores",
    "privacy": "accuracy over noise on features and over epsilon of the updates",
    "faithfulness": "deletion, insertion, sufficiency and compactness of evidence",
    "complexity": "measured growth of time and stored bytes with graph and core",
    "attacks": "what uploads and means reveal about training nodes and labels",
}
_OUTSIDE = "from another package"

# name -> "module:function"; function(run_folder, config, partition_folder) -> JSON-able dict
ANALYSES: dict[str, str] = {
    "faithfulness": "dance_flwr.study.protocols.faithfulness.protocol:analyse",
}


def summary(name: str) -> str:
    """Return one line on an experiment without importing it."""
    return _SUMMARIES.get(name, _OUTSIDE)


def get_experiment(name: str) -> "Experiment":
    """Return the experiment of this name; its module is imported now.

    Raises
    ------
    UserError : there is no such experiment; the message lists the choices
    """
    return EXPERIMENTS.get(name)  # type: ignore[no-any-return]


def get_analysis(name: str) -> Callable[..., dict[str, Any]]:
    """Return the analysis of this name: function(run_folder, config, partition_folder) -> dict.

    Raises
    ------
    UserError : there is no such analysis; the message lists the choices
    """
    if name not in ANALYSES:
        raise UserError(f"analysis: expected one of {', '.join(ANALYSES)}, found {name!r}")
    return resolve(ANALYSES[name], f"analysis {name!r}")  # type: ignore[no-any-return]


def get_measure(target: str) -> Callable[..., dict[str, Any]]:
    """Return the measurement that "module:function" names: function(labels) -> dict.

    A module name without dots is a module of this package.

    Raises
    ------
    UserError : there is no such module or function
    """
    path = target if "." in target.partition(":")[0] else f"{__name__}.{target}"
    return resolve(path, f"measurement {target!r}")  # type: ignore[no-any-return]
