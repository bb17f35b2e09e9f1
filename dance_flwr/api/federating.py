"""`federate`: train the clients of a federation in this process."""

import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dance_flwr.api.bundle import FACTS
from dance_flwr.api.inputs import ConfigLike, checked_graph, keys_of
from dance_flwr.api.result import BUNDLE, Result
from dance_flwr.config.options import Value
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.data.checks import check_graph
from dance_flwr.data.graphs.edges import EdgeTexts, Weights
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.graphs.graph import TextGraph
from dance_flwr.data.institution import relabel
from dance_flwr.data.partition import resolve_split
from dance_flwr.data.prepare import WARNING, prepare
from dance_flwr.errors import UserError
from dance_flwr.federation.privacy.dp import affordable_rounds
from dance_flwr.methods import check_method
from dance_flwr.methods.contract import MethodSpec
from dance_flwr.runs.locks import SERVER, exclusive
from dance_flwr.runs.result import read_result
from dance_flwr.runs.resume import holds_run
from dance_flwr.runs.run import set_latest_run
from dance_flwr.terminal import round_bar

_DATA = "data"  # graphs that were given as objects, in the folder of the run


def federate(
    graphs: TextGraph | Sequence[TextGraph] | str | Path,
    config: ConfigLike = None,
    *,
    method: str | MethodSpec | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> Result:
    """Train a federation in this process, one client after the other; return its result.

    The server and the clients are those of a deployment, and so are the messages between them;
    no engine is started. A run of `dance-flwr run` gives the same numbers.

    Parameters
    ----------
    graphs : one graph per institution; or one graph, its name or its folder, which the partitioner
        of `config` divides among clients
    config : keys such as {"rounds": 10, "method": "dance", "dance.mix": 0.4}, nested ones as in
        TOML, or a TOML file; the defaults are those of the command line. With several graphs,
        `clients` and `partition` are not keys
    method : name of a method, or one of your own; None = that of `config`
    out : new or empty folder of the run, or with the key `overwrite` that of one to replace; None
        = a new one under `runs/`
    progress : show a bar with the validation accuracy

    Returns
    -------
    The result. Prepared data, with the texts, are kept under `data-root`; graphs that were given as
    objects also under `data/` in the run's folder

    Raises
    ------
    UserError : a key or a graph cannot be used, `out` holds something else, or the run fails

    Examples
    --------
    Two institutions with a graph of four nodes each:

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from dance_flwr import TextGraph, federate
    >>> texts = ["stars and dust", "a red dwarf star", "leaves in autumn", "moss on an oak"]
    >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([0, 0, 1, 1]))
    >>> data.num_nodes = 4
    >>> graph = TextGraph.from_pyg(data, texts, class_names=["astronomy", "botany"])
    >>> keys = {"rounds": 2, "train-ratio": 0.5, "val-ratio": 0.25, "test-ratio": 0.25}
    >>> result = federate([graph, graph], keys, out="example", progress=False)
    >>> len(result.history), len(result.clients)
    (2, 2)
    >>> result.model.explain(graph, ["3"])
    Evidence(1 node, ... spans, model ...)
    """
    keys = keys_of(config)
    if method is not None:
        keys |= {"method": method if isinstance(method, str) else _registered(method)}
    if out is not None:
        keys |= {"out": str(out)}
    if isinstance(graphs, str | Path):
        return _run(_placed(keys | {"data": str(graphs)}), progress)
    if isinstance(graphs, TextGraph):
        graph = checked_graph(graphs)
    else:
        keys |= _one_client_each(keys, graphs)
        graph = together(graphs, parse(keys))
    config_ = _placed(keys | {"data": _file_name(graph.name)})
    check_graph(graph, config_.clients)  # before it is written
    source = Path(config_.out) / _DATA / _file_name(graph.name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* nodes have an empty text")
        return _run(replace(config_, data=str(source)), progress, graph)


def _registered(spec: MethodSpec) -> str:
    """Return the name of a method, after registering it under its client's class if it is new."""
    for name, known in METHODS.all().items():
        if known is spec:
            return name
    client = spec.client
    name = client.rpartition(":")[2] if isinstance(client, str) else client.__name__
    METHODS.builtin[name] = spec
    return name


def together(graphs: Sequence[object], config: RunConfig) -> TextGraph:
    """Return one graph of all institutions, with `site` and without edges between institutions.

    If institutions share ids, all ids get the number of their institution as a prefix. If some
    graphs have a split, the others get one by `config`.
    """
    checked = [checked_graph(graph) for graph in graphs]
    names = tuple(sorted({name for graph in checked for name in graph.class_names}))
    ids = np.concatenate([graph.ids for graph in checked])
    if len(set(ids.tolist())) < len(ids):
        parts = [np.char.add(f"{k}/", graph.ids) for k, graph in enumerate(checked)]
        ids = np.concatenate(parts)
    has_split = any(graph.split.any() for graph in checked)
    # Nobody knows edges between institutions.
    adjacency = sp.block_diag([graph.adjacency() for graph in checked], format="csr")
    # `by-column` orders clients by the names of their sites, so numbers need leading zeros.
    width = len(str(len(checked) - 1))
    sites = [np.full(graph.num_nodes, f"{k:0{width}d}") for k, graph in enumerate(checked)]
    weights, edge_texts = _edges_together(checked)
    plain: dict[str, Any] = {
        attribute: np.concatenate([_strings(graph, attribute) for graph in checked])
        for attribute in TextGraph.columns(plain=True).values()
        if any(attribute in graph.per_node() for graph in checked)
    }
    return TextGraph(
        name="-".join(dict.fromkeys(_file_name(graph.name) for graph in checked))[:60],
        ids=ids,
        texts=[text for graph in checked for text in graph.texts],
        labels=np.concatenate([relabel(graph, names).labels for graph in checked]),
        class_names=names,
        indptr=adjacency.indptr.astype(np.int64),
        indices=adjacency.indices.astype(np.int64),
        split=np.concatenate(
            [_split(graph, config) if has_split else graph.split for graph in checked]
        ),
        weights=weights,
        edge_texts=edge_texts,
        **plain | {"site": np.concatenate(sites)},
    )


def _strings(graph: TextGraph, attribute: str) -> NDArray[np.str_]:
    """Return an optional column of the nodes; "" everywhere if the graph lacks it."""
    values: NDArray[np.str_] = graph.per_node().get(attribute, np.full(graph.num_nodes, ""))
    return values


def _edges_together(graphs: Sequence[TextGraph]) -> tuple[Weights, EdgeTexts | None]:
    weights = None
    if any(graph.weights is not None for graph in graphs):
        # Weights are compared within an institution only, so equal ones are as good as none.
        ones = [np.ones(len(graph.indices), np.float32) for graph in graphs]
        pairs = zip(graphs, ones, strict=True)
        weights = np.concatenate([one if g.weights is None else g.weights for g, one in pairs])
    first = np.cumsum([0, *(graph.num_nodes for graph in graphs)])
    parts = [
        (graph.edge_texts.source + start, graph.edge_texts.target + start, graph.edge_texts.texts)
        for graph, start in zip(graphs, first.tolist(), strict=False)
        if graph.edge_texts is not None
    ]
    if not parts:
        return weights, None
    source, target, texts = zip(*parts, strict=True)
    every = tuple(text for part in texts for text in part)
    return weights, EdgeTexts(np.concatenate(source), np.concatenate(target), every)


def _split(graph: TextGraph, config: RunConfig) -> NDArray[np.uint8]:
    ratios = (config.train_ratio, config.val_ratio, config.test_ratio)
    alone = np.zeros(graph.num_nodes, np.int64)
    return resolve_split(graph, alone, ratios, config.seed)


def _one_client_each(keys: Mapping[str, Value], graphs: object) -> dict[str, Value]:
    if not isinstance(graphs, Sequence):
        raise UserError(
            f"graphs: expected a TextGraph or a list of them, found {type(graphs).__name__}"
        )
    if not graphs:
        raise UserError("graphs: expected one graph per institution, found none")
    if given := [f"{key} = {keys[key]!r}" for key in ("clients", "partition") if key in keys]:
        raise UserError(
            "config: expected no key 'clients' or 'partition' with one graph per institution, "
            f"found {' and '.join(given)}; leave them out"
        )
    return {"clients": len(graphs), "partition": "by-column"}


def _placed(keys: Mapping[str, Value]) -> RunConfig:
    """Return a checked configuration with a writable run folder."""
    config = parse(keys)
    if config.resume:
        raise UserError("resume: expected a new run, found the key `resume`; leave it out")
    check_method(config)
    # Before texts are encoded: raises if the privacy budget allows no round.
    affordable_rounds(config)
    from dance_flwr.runs.simulation.in_process import placed  # which needs Flower

    config = placed(config)
    folder = Path(config.out)
    content = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if content and not (config.overwrite and holds_run(folder)):
        raise UserError(
            f"{folder}: expected a new or empty folder, found {content[0]!r} there; choose another "
            "`out`, or replace a run with the key `overwrite`"
        )
    return config


def _run(config: RunConfig, progress: bool, graph: TextGraph | None = None) -> Result:
    from dance_flwr.runs.simulation.in_process import run_in_process

    folder = Path(config.out)
    with nullcontext() if graph is None else _stored(graph, Path(config.data)):
        prepare(config, _pass_warnings)
    with exclusive(folder, SERVER), round_bar(config.rounds, progress) as on_round:
        set_latest_run(folder)
        # `Result.model` would open the bundle of the earlier run.
        if (folder / BUNDLE / FACTS).is_file():
            shutil.rmtree(folder / BUNDLE)
        run_in_process(config, folder, on_round)
    return Result(folder, config, read_result(folder))


@contextmanager
def _stored(graph: TextGraph, source: Path) -> Iterator[None]:
    """Write a graph to `source`, in the folder of a run; remove it after an error in the block."""
    # Only what is created here is removed.
    new = [path for path in (source, *source.parents[:2]) if not path.exists()]
    try:
        write_folder(graph, source)
        yield
    # Also after Ctrl-C.
    except BaseException:
        if source in new:
            shutil.rmtree(source, ignore_errors=True)
        for path in new:
            with suppress(OSError):
                path.rmdir()  # if it is empty
        raise


def _pass_warnings(line: str) -> None:
    """Turn a warning of `prepare` into a Python warning; other lines are for the command line."""
    if line.startswith(WARNING):
        warnings.warn(line.removeprefix(WARNING), stacklevel=2)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip(".-") or "graph"
