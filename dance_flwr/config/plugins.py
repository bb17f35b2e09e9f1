"""The plug-ins of this package, one line each, and those that other packages bring.

A name stands for "module:attribute"; the module is imported when the plug-in is used. Another
package adds its own through an entry point of the registry's group:

    [project.entry-points."dance_flwr.methods"]
    my-method = "my_package.my_method:METHOD"
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dance_flwr.errors import UserError


@dataclass(eq=False)
class Registry(Collection[str]):
    """Plug-ins of one kind by name.

    Attributes
    ----------
    group : entry-point group that other packages add to
    kind : what a plug-in is called in messages, which is also its configuration key if it has one
    builtin : name -> "module:attribute", or the plug-in itself; in the order of lists and tables
    """

    group: str
    kind: str
    builtin: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _found(self) -> Mapping[str, str]:
        return {point.name: point.value for point in entry_points(group=self.group)}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, those of this package first."""
        return iter(self.names())

    def __len__(self) -> int:
        """Return the number of plug-ins."""
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        """Whether there is a plug-in of this name."""
        return name in self.builtin or name in self._found

    def names(self) -> tuple[str, ...]:
        """Return all names, those of this package first.

        Raises
        ------
        UserError : an installed package takes a name of this package
        """
        if taken := sorted(self.builtin.keys() & self._found.keys()):
            raise UserError(
                f"entry point {self.group}: expected a name of its own, found {taken[0]!r}, which "
                "dance-flwr has; rename it in the package that declares it"
            )
        return (*self.builtin, *sorted(self._found))

    def get(self, name: str) -> Any:
        """Return the plug-in of this name; its module is imported now.

        Raises
        ------
        UserError : there is no such plug-in, or it cannot be imported; the message lists the
            choices
        """
        if name not in self:
            choices = ", ".join(self.names())
            raise UserError(f"{self.kind}: expected one of {choices}, found {name!r}")
        target = self.builtin.get(name) or self._found[name]
        if not isinstance(target, str):
            return target
        return resolve(target, f"{self.kind} {name!r}")

    def all(self) -> dict[str, Any]:
        """Return every plug-in by name."""
        return {name: self.get(name) for name in self.names()}


def resolve(target: str, what: str) -> Any:
    """Return what "module:attribute" names.

    Raises
    ------
    UserError : there is no such module or attribute; errors inside the module are raised as they
        are
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UserError(f"{what}: expected {attribute!r} in module {module}, found none") from None


METHODS = Registry(
    "dance_flwr.methods",
    "method",
    {
        "dance": "dance_flwr.methods.dance:METHOD",
        "fedavg-full": "dance_flwr.methods.fedavg_full:METHOD",
        "local-only": "dance_flwr.methods.local_only:METHOD",
        "random-core": "dance_flwr.methods.selected_core:RANDOM",
        "herding-core": "dance_flwr.methods.selected_core:HERDING",
        "k-center-core": "dance_flwr.methods.selected_core:K_CENTER",
        "gcond": "dance_flwr.methods.gcond:METHOD",
        "sfgc": "dance_flwr.methods.sfgc:METHOD",
        "fedgta": "dance_flwr.methods.fedgta:METHOD",
        "fedtad": "dance_flwr.methods.fedtad:METHOD",
        "fedgvd": "dance_flwr.methods.fedgvd:METHOD",
        "fedsage": "dance_flwr.methods.fedsage:METHOD",
        "fedgm": "dance_flwr.methods.fedgm:METHOD",
        "fedc4": "dance_flwr.methods.fedc4:METHOD",
    },
)
STRATEGIES = Registry(
    "dance_flwr.strategies",
    "strategy",
    {
        "fedavg": "dance_flwr.federation.server.strategies:fedavg",
        "fedavgm": "dance_flwr.federation.server.strategies:fedavgm",
        "fedprox": "dance_flwr.federation.server.strategies:fedprox",
        "fedadam": "dance_flwr.federation.server.strategies:fedadam",
        "fedyogi": "dance_flwr.federation.server.strategies:fedyogi",
        "fedadagrad": "dance_flwr.federation.server.strategies:fedadagrad",
    },
)
PARTITIONERS = Registry(
    "dance_flwr.partitioners",
    "partition",
    {
        "louvain": "dance_flwr.data.partition.louvain:assign",
        "metis": "dance_flwr.data.partition.metis:assign",
        "label-dirichlet": "dance_flwr.data.partition.label_dirichlet:assign",
        "random": "dance_flwr.data.partition.random_nodes:assign",
        "by-column": "dance_flwr.data.partition.by_column:assign",
    },
)
BACKBONES = Registry(
    "dance_flwr.backbones",
    "backbone",
    {
        "gcn": "dance_flwr.nn.backbones:Gcn",
        "gat": "dance_flwr.nn.backbones:Gat",
        "sage": "dance_flwr.nn.backbones:Sage",
        "gin": "dance_flwr.nn.backbones:Gin",
        "appnp": "dance_flwr.nn.backbones:Appnp",
        "sgc": "dance_flwr.nn.backbones:Sgc",
    },
)
DATASETS = Registry("dance_flwr.datasets", "data", {"pydocs": "dance_flwr.data.pydocs:DATASET"})
