"""The experiments and analyses, by name; each is imported when it is used.

Another package adds an experiment through an entry point:

    [project.entry-points."dance_flwr.experiments"]
    my-study = "my_package.my_study:EXPERIMENT"
"""

from typing import Any

from dance_flwr.config.plugins import Registry

__all__ = ["EXPERIMENTS", "get_experiment", "summary"]

_PROTOCOLS = f"{__name__}.protocols"
# Name -> (where it is, one line). The line stands here, as `--help` imports no experiment.
_BUILTIN = {
    "main-table": ("main_table:EXPERIMENT", "accuracy of every method at each condensation ratio"),
    "ablation": ("ablation:ABLATION", "DANCE without topology, text or node condensation"),
    "refresh-study": ("ablation:REFRESH", "refresh core and text, one of them, or neither"),
    "convergence": ("convergence:EXPERIMENT", "validation accuracy by round"),
    "hyper": ("hyper:EXPERIMENT", "evidence budgets, mix, alpha and beta"),
    "clients": ("robustness:CLIENTS", "3, 5, 10 and 20 clients"),
    "backbone": ("robustness:BACKBONE", "graph backbones"),
    "non-iid": ("robustness:NON_IID", "ways to divide the graph among clients"),
    "runtime": ("runtime:EXPERIMENT", "seconds per round and phase, as ratios to fedavg-full"),
    "tokens": (
        "tokens:EXPERIMENT",
        "text processed per condensed node, compared with the full text",
    ),
    "settings": (
        "settings:EXPERIMENT",
        "what the harness's own settings change, for both methods alike",
    ),
    "primary": ("primary:EXPERIMENT", "six comparisons fixed before their runs, and controls"),
    "texts": ("texts:EXPERIMENT", "accuracy by the number of texts in a core chosen once"),
    "encoders": ("encoders:EXPERIMENT", "what another text encoder is worth, and what it costs"),
    "privacy": (
        "privacy:EXPERIMENT",
        "accuracy over noise on features and over epsilon of the updates",
    ),
    "faithfulness": (
        "faithfulness.protocol:EXPERIMENT",
        "deletion, insertion, sufficiency and compactness of evidence",
    ),
    "complexity": (
        "complexity.protocol:EXPERIMENT",
        "measured growth of time and stored bytes with graph and core",
    ),
    "attacks": (
        "attacks.protocol:EXPERIMENT",
        "what uploads and means reveal about training nodes and labels",
    ),
}

EXPERIMENTS = Registry(
    "dance_flwr.experiments",
    "experiment",
    {name: f"{_PROTOCOLS}.{target}" for name, (target, _) in _BUILTIN.items()},
)


def summary(name: str) -> str:
    """Return one line on an experiment without importing it."""
    return _BUILTIN[name][1] if name in _BUILTIN else "from another package"


def get_experiment(name: str) -> Any:
    """Return the `engine.cells.Experiment` of this name; its module is imported now."""
    return EXPERIMENTS.get(name)
