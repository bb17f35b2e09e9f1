"""What users pass: graphs, models, configurations and nodes, checked before work starts."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dance_flwr.api.bundle import Bundle
from dance_flwr.config.options import Value
from dance_flwr.config.text import flat_keys, read_values
from dance_flwr.config.tree import RunConfig, flatten, parse
from dance_flwr.data.graphs.graph import TextGraph, check_texts
from dance_flwr.data.graphs.limits import listed
from dance_flwr.errors import UserError

# A graph, the name or folder of one, or the folder of a client.
GraphLike = TextGraph | str | Path
# Keys as on the command line (`{"dance.mix": 0.4}`), nested as in TOML, or a TOML file.
ConfigLike = Mapping[str, Any] | RunConfig | str | Path | None
Nodes = str | int | Iterable[str] | Iterable[int]


@runtime_checkable
class HasBundle(Protocol):
    """What holds an exported model: a `Predictor`, or the `Result` of a run."""

    @property
    def bundle(self) -> Bundle:
        """The model, its configuration and its calibration."""
        ...


ModelLike = HasBundle | Bundle | str | Path


def bundle_of(model: ModelLike) -> Bundle:
    """Return the bundle behind a model."""
    if isinstance(model, Bundle):
        return model
    if isinstance(model, str | Path):
        return Bundle.open(Path(model).expanduser())
    if isinstance(model, HasBundle):
        return model.bundle
    raise UserError(
        f"model: expected what load(BUNDLE) or federate(...) return, or the folder of a bundle, "
        f"found {type(model).__name__}"
    )


def checked_graph(graph: object) -> TextGraph:
    """Return the graph, after checking that it has a node and texts that can be stored."""
    if not isinstance(graph, TextGraph):
        kind = type(graph).__name__
        hint = "TextGraph.from_pyg(data, texts) makes one"
        if isinstance(graph, str | os.PathLike):
            kind, hint = repr(os.fspath(graph)), "load_graph(name or folder) reads one"
        raise UserError(f"graph: expected a TextGraph, found {kind}; {hint}")
    if not graph.num_nodes:
        raise UserError("graph: expected at least one node, found none")
    # Before minutes of encoding, at whose end half a character cannot be stored.
    check_texts(graph.texts)
    if graph.edge_texts is not None:
        check_texts(graph.edge_texts.texts)
    return graph


def source_of(graph: GraphLike) -> TextGraph | str:
    """Return a checked graph, or the name or folder of one."""
    if isinstance(graph, str | os.PathLike):
        return str(Path(graph).expanduser()) if isinstance(graph, os.PathLike) else graph
    return checked_graph(graph)


def keys_of(config: ConfigLike) -> dict[str, Value]:
    """Return the flat keys that a configuration sets, unchecked."""
    if isinstance(config, str | Path):
        return read_values([Path(config).expanduser()], [])
    if isinstance(config, RunConfig):
        # Only what differs from the defaults was set by the user.
        default = flatten(RunConfig())
        return {key: value for key, value in flatten(config).items() if value != default[key]}
    if config is None or isinstance(config, Mapping):
        return flat_keys(config or {})
    raise UserError(
        "config: expected keys and values such as {'rounds': 10}, or a TOML file, found "
        f"{type(config).__name__}; `dance-flwr list keys` has the keys"
    )


def config_of(config: ConfigLike) -> RunConfig:
    """Return a checked configuration."""
    return parse(keys_of(config))


def rows_of(nodes: Nodes, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the places of distinct nodes in `ids`, [m] int64.

    Parameters
    ----------
    nodes : ids, or places from 0, or one bool per node

    Raises
    ------
    UserError : one is unknown or given twice, or there is none
    """
    several = [nodes] if isinstance(nodes, str | int | np.integer) else list(nodes)
    values = np.asarray([_plain(node) for node in several])
    if values.dtype == np.bool_:
        if len(values) != len(ids):
            raise UserError(f"nodes: expected {len(ids)} values, one per node, found {len(values)}")
        values = np.flatnonzero(values)
    if not len(values):
        raise UserError("nodes: expected at least one node, found none")
    if values.dtype.kind == "U":
        place = {name: row for row, name in enumerate(ids)}
        if strange := [name for name in values.tolist() if name not in place]:
            found = listed(map(repr, strange))
            raise UserError(f"nodes: expected ids of the graph, found {found}")
        values = np.array([place[name] for name in values.tolist()])
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise UserError(
            f"nodes: expected ids or places of nodes, found {several[0]!r}; give "
            "strings or integers"
        )
    outside = values[(values < 0) | (values >= len(ids))]
    if len(outside):
        raise UserError(f"nodes: expected places in 0..{len(ids) - 1}, found {outside[0]}")
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < len(values):
        twice = ids[distinct[counts > 1][0]]
        raise UserError(f"nodes: expected each node once, found {twice!r} again; remove it")
    return values.astype(np.int64)


def _plain(node: object) -> object:
    item = getattr(node, "item", None)
    return item() if callable(item) else node
