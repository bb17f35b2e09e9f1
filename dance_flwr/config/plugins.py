"""The plug-ins of this package, one line each, and those of other installed packages.

A plug-in is registered as "module:attribute"; its module is imported when the plug-in is first
used. Another package registers plug-ins through an entry point of the registry's group.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dance_flwr.errors import UserError, unknown


@dataclass(eq=False)
class Registry(Collection[str]):
    """Plug-ins of one kind by name.

    Attributes
    ----------
    group : entry-point group through which other packages register plug-ins
    kind : what messages call a plug-in; also its configuration key, if it has one
    builtin : name -> "module:attribute", or the plug-in itself; in the order of lists and tables
    elsewhere : distribution -> the names that it would register, for the refusal of one that is not
        installed
    has : an attribute of every plug-in of the kind, and what it is an attribute of, for messages
    """

    group: str
    kind: str
    builtin: dict[str, Any] = field(default_factory=dict)
    elsewhere: Mapping[str, Collection[str]] = field(default_factory=dict)
    has: tuple[str, str] = ("__class__", "an object")

    @cached_property
    def _external(self) -> Mapping[str, str]:
        return {point.name: point.value for point in entry_points(group=self.group)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._external

    def names(self) -> tuple[str, ...]:
        """Return all names: those of this package in their order, then the others sorted."""
        if clashes := self.builtin.keys() & self._external.keys():
            name = min(clashes)
            raise UserError(
                f"entry point {self.group}: expected a name that dance-flwr does not use, found "
                f"{name!r} = {self._external[name]!r}; rename or uninstall the package's plug-in"
            )
        return (*self.builtin, *sorted(self._external))

    def get(self, name: str) -> Any:
        """Return the plug-in of this name, importing its module if needed.

        Raises
        ------
        UserError : the name is unknown or registered twice, or its object is absent or another kind
        """
        target, what = self.target(name), f"{self.kind} {name!r}"
        if not hasattr(found := resolve(target, what), self.has[0]):
            wrong = f"{type(found).__name__} without {self.has[0]!r}"
            raise UserError(f"{what}: expected {self.has[1]}, found {wrong}; correct {target!r}")
        return found

    def target(self, name: str) -> Any:
        """Return the registration of this name: "module:attribute", or the plug-in itself."""
        self.check([name])
        return self.builtin[name] if name in self.builtin else self._external[name]

    def check(self, names: Sequence[str], what: str = "") -> None:
        """Refuse names that are not registered, all in one line with the choices.

        Parameters
        ----------
        what : the option that gives the names; "" = `kind`
        """
        if strange := [name for name in names if name not in self.names()]:
            raise UserError(self.refusal(strange, what))

    def refusal(self, strange: Sequence[str], what: str = "") -> str:
        """Return one line about names that are not registered; `what` as in `check`."""
        for package, missing in self.elsewhere.items():
            if lacking := [name for name in strange if name in missing]:
                return (
                    f"{what or self.kind}: expected an installed one, found "
                    f"{', '.join(map(repr, lacking))} of {package}, which is not installed; run "
                    f"`pip install {package}`"
                )
        return unknown(what or self.kind, strange, self.names())

    def all(self) -> dict[str, Any]:
        """Return every plug-in by name."""
        return {name: self.get(name) for name in self.names()}


def resolve(target: Any, what: str) -> Any:
    """Import and return the object that "module:attribute" names; return another object as it is.

    Parameters
    ----------
    what : what messages call the object
    """
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    try:
        loaded = import_module(module)
    # The message of a plug-in says more than one about its import.
    except UserError:
        raise
    # The module of another package may raise anything while it is imported.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"{what}: expected to import module {module!r}, found {reason}; install or "
            f"repair its package (`python -c 'import {module}'` prints the traceback)"
        ) from error
    if not hasattr(loaded, attribute):
        raise UserError(
            f"{what}: expected {attribute!r} in module {module!r}, found none; correct the "
            f"registration {target!r}"
        )
    return getattr(loaded, attribute)


# The rivals of the paper and of ours, in the repository's folder rivals/.
RIVALS = (
    *("self-training", "random-core", "rotating-core", "herding-core", "k-center-core"),
    *("gcond", "sfgc", "fedgta", "fedtad", "fedgvd", "fedsage", "fedgm", "fedc4"),
    *("llm4rgnn", "llm4rgnn-cosine", "llata", "llata-cosine", "llata-propagation"),
    *("llm4fgl", "llm4fgl-recombined"),
)
METHODS = Registry(
    "dance_flwr.methods",
    "method",
    {
        "dance": "dance_flwr.methods.dance:METHOD",
        "fedavg-full": "dance_flwr.methods.baselines:FEDAVG_FULL",
        "fedavg-rotating": "dance_flwr.methods.baselines:FEDAVG_ROTATING",
        "local-only": "dance_flwr.methods.baselines:LOCAL_ONLY",
        "fedper": "dance_flwr.methods.baselines:FEDPER",
        "ditto": "dance_flwr.methods.baselines:DITTO",
    },
    {"dance-flwr-rivals": RIVALS},
    has=("sections", "a MethodSpec"),
)
STRATEGIES = Registry(
    "dance_flwr.strategies",
    "strategy",
    {
        name: f"dance_flwr.federation.server.strategies:{name}"
        for name in (
            *("fedavg", "fedavgm", "fedprox", "fedadam", "fedyogi", "fedadagrad", "fedmedian"),
            "fedtrimmedavg",
        )
    },
)
# Strategies that read each upload instead of the merged one.
READ_EACH = frozenset({"fedmedian", "fedtrimmedavg"})
PARTITIONERS = Registry(
    "dance_flwr.partitioners",
    "partition",
    {
        "louvain": "dance_flwr.data.partition.louvain:assign",
        "metis": "dance_flwr.data.partition.partitioners:assign_by_metis",
        "label-dirichlet": "dance_flwr.data.partition.partitioners:assign_by_labels",
        "random": "dance_flwr.data.partition.partitioners:assign_random",
        "by-column": "dance_flwr.data.partition.partitioners:assign",
    },
)
BACKBONES = Registry(
    "dance_flwr.backbones",
    "backbone",
    {
        "gcn": "dance_flwr.nn.gcn:Gcn",
        "gat": "dance_flwr.nn.backbones:Gat",
        "sage": "dance_flwr.nn.backbones:Sage",
        "gin": "dance_flwr.nn.backbones:Gin",
        "appnp": "dance_flwr.nn.backbones:Appnp",
        "sgc": "dance_flwr.nn.backbones:Sgc",
    },
)
DATASETS = Registry(
    "dance_flwr.datasets",
    "data",
    {"pydocs": "dance_flwr.data.graphs.pydocs:DATASET"},
    has=("build", "a GraphSource"),
)
CHUNK_RULES = Registry(
    "dance_flwr.chunk_rules", "dance.chunk-rule", {"entmax": "dance_flwr.nn.entmax:entmax15"}
)
TRACKERS = Registry(
    "dance_flwr.trackers",
    "--track",
    {
        "mlflow": "dance_flwr.runs.tracking:mlflow",
        "tensorboard": "dance_flwr.runs.tracking:tensorboard",
    },
)
