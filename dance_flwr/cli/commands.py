"""What the commands do, apart from reading the command line."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from dance_flwr.config.options import Value
from dance_flwr.config.reading import read_config
from dance_flwr.config.tree import RunConfig, parse
from dance_flwr.dance.config import DanceConfig
from dance_flwr.data.site import Site
from dance_flwr.errors import ConfigError, ResumeError, UserError

Say = Callable[[str], None]


def run_command(
    files: Sequence[Path], pairs: Sequence[str], named: Mapping[str, Value], in_process: bool
) -> None:
    """Prepare, run with a progress bar, print the table and where everything is."""
    from dataclasses import replace

    from dance_flwr.config.paths import data_root
    from dance_flwr.data import unambiguous
    from dance_flwr.data.prepare import prepare
    from dance_flwr.methods import check_method
    from dance_flwr.privacy.dp import affordable_rounds
    from dance_flwr.simulation.superlink import app_dir

    config = read_config(files, pairs, named)
    if config.resume:
        raise UserError(
            f"resume: expected `dance-flwr run --resume {config.out}`, found the key; it is for `flwr run`"
        )
    check_method(config)
    affordable_rounds(
        config
    )  # a budget too small for one round is refused before texts are encoded
    if not in_process:
        app_dir()
    name = time.strftime(
        f"{Path(config.data).name}-{config.method}-seed{config.seed}-%Y%m%d-%H%M%S"
    )
    folder = Path(config.out).expanduser().resolve() if config.out else Path.cwd() / "runs" / name
    # The server of an engine works elsewhere: every path it gets is absolute.
    data = unambiguous(config.data, data_root(config))
    config = replace(config, out=str(folder), data=data, data_root=str(data_root(config)))
    _run(config, prepare(config, print).folder, in_process, 0)


def resume_command(folder: Path, in_process: bool) -> None:
    """Go on with the run in `folder` from its last whole round, with its own configuration; then as
    `run_command`.

    Raises
    ------
    ResumeError : there is nothing to go on from, or it cannot be gone on from
    """
    from dataclasses import replace

    from dance_flwr.config.paths import SETTINGS
    from dance_flwr.runs.checkpoint import resumable
    from dance_flwr.simulation.superlink import app_dir

    folder = folder.expanduser().resolve()
    point = resumable(folder)
    if not point.partition:
        raise ResumeError(
            f"{folder}: expected a run on data of this machine, found one whose clients hold their own; go on with "
            f"`flwr run APP SUPERLINK --run-config {folder / SETTINGS}`"
        )
    if not in_process:
        app_dir()
    prepared = point.prepared(print)
    print(
        f"resume      {point.run} in {folder}, {point.round} of {point.config.rounds} rounds are over"
    )
    _run(
        replace(point.config, out=str(folder), resume=True),
        prepared.folder,
        in_process,
        point.round,
    )


def _run(config: RunConfig, partition: Path, in_process: bool, done: int) -> None:
    """Run from round `done` + 1 with a progress bar, print the table and where everything is."""
    from dance_flwr.events import structured
    from dance_flwr.runs.checkpoint import how_to_resume, telling_how_to_resume
    from dance_flwr.runs.locks import SERVER, exclusive
    from dance_flwr.simulation.engine import run_in_process, run_under_flower

    folder = Path(config.out)
    engine = "in this process" if in_process else "under Flower's simulation engine"
    print(
        f"run         {config.method}, {config.rounds} rounds, {config.clients} clients, {engine}",
        flush=True,
    )
    bar = tqdm(total=config.rounds, initial=done, unit="round", desc="rounds", disable=structured())
    try:
        with telling_how_to_resume(folder), bar:
            if in_process:
                with exclusive(folder, SERVER):
                    result = run_in_process(config, folder, _progress(bar))
            else:
                result = run_under_flower(config, folder, _progress(bar))
    except KeyboardInterrupt:
        print(how_to_resume(folder), file=sys.stderr)
        raise
    Console().print(table(result))
    print(
        f"macro-F1    {result['test_macro_f1']:.4f} on the test nodes, best validation in round {result['best_round']}"
    )
    print(f"device      {', '.join(sorted(set(result['devices'])))}")
    example = partition / "client-0" / "runs" / result["run"] / "evidence" / "example.txt"
    if example.is_file():
        print(f"evidence    {example}")
    print(f"result      {folder / 'result.json'}")


def table(result: Mapping[str, Any]) -> Table:
    """Return accuracy per client and overall."""
    made = Table(box=SIMPLE_HEAD)
    for heading in ("client", "nodes", "test nodes", "val accuracy", "test accuracy"):
        made.add_column(heading, justify="right")
    nodes = result["nodes_per_client"]
    for row in result["clients"]:
        scores = (f"{row['val_accuracy']:.4f}", f"{row['test_accuracy']:.4f}")
        made.add_row(str(row["client"]), str(nodes[row["client"]]), str(row["test_nodes"]), *scores)
    made.add_section()
    total = result["test_nodes"]
    scores = (f"{result['val_accuracy']:.4f}", f"{result['test_accuracy']:.4f}")
    made.add_row("overall", str(sum(nodes)), str(total), *scores)
    return made


def show_command(run: Path, client: int, node: str | None, client_folder: Path | None) -> str:
    """Return one evidence pack of a run as text."""
    import numpy as np
    import torch

    from dance_flwr.dance.algorithm import explain
    from dance_flwr.dance.packs import Packs
    from dance_flwr.dance.show import most_telling, render
    from dance_flwr.dance.state import RunFolder

    result, config = _finished(run)
    site = _site(result, client, client_folder, config)
    packs = Packs.load(RunFolder(site.folder, result["run"]).final_path)
    if node is None:
        if not len(packs.nodes):
            raise UserError(
                f"client {client}: expected evidence packs, found none; choose another client"
            )
        return render(site, packs, most_telling(packs))
    ids = site.ids()
    if node not in ids:
        raise UserError(f"--node: expected the id of a node of client {client}, found {node!r}")
    row = packs.row_of(ids.index(node))
    if row is None:
        model = _model(run, site, config)
        nodes = torch.as_tensor(np.array([ids.index(node)]))
        packs = explain(
            model,
            site,
            nodes,
            DanceConfig.of(config),
            result["best_round"],
            result["model_fingerprint"],
        )
        row = 0
    return render(site, packs, row)


def verify_command(run: Path, client_folder: Path | None, say: Say) -> None:
    """Check every evidence pack of a run; one line per client.

    Raises
    ------
    UserError : the first span, weight or model that does not hold
    """
    from dance_flwr.dance.packs import Packs
    from dance_flwr.dance.show import Verified, verify_sources, verify_spans, verify_weights
    from dance_flwr.dance.state import RunFolder
    from dance_flwr.fingerprint import model_fingerprint
    from dance_flwr.runs.reader import load_model

    result, config = _finished(run)
    found = model_fingerprint(load_model(run))
    if found != result["model_fingerprint"]:
        raise UserError(
            f"{run}: expected model {result['model_fingerprint']}, found {found}; the saved model was altered"
        )
    clients = range(config.clients) if client_folder is None else [None]
    for client in clients:
        site = _site(result, client, client_folder, config)
        texts = verify_sources(site)
        model = _model(run, site, config)
        done = Verified()
        for path in RunFolder(site.folder, result["run"]).all_packs():
            packs = Packs.load(path)
            if path.stem == "final" and packs.model_id != found:
                raise UserError(
                    f"{path}: expected packs of model {found}, found {packs.model_id}; they were altered"
                )
            verify_spans(site, packs, path.name, texts)
            done.packs, done.spans = done.packs + len(packs.nodes), done.spans + len(packs.chunks)
            # Frozen evidence was chosen by an earlier model than the one that a later pack names.
            if packs.model_id == found and (
                path.stem == "final" or DanceConfig.of(config).text_refresh_every == 1
            ):
                graph = site.graph if path.stem == "final" else site.training_graph
                verify_weights(site, packs, path.name, model, DanceConfig.of(config), graph)
                done.recomputed += len(packs.nodes)
        say(
            f"client {site.card.client}: {done.spans:,} spans of {done.packs:,} packs read back from the source texts, "
            f"weights of {done.recomputed:,} packs recomputed from model {found}"
        )
    say("evidence verified")


def _finished(run: Path) -> tuple[dict[str, Any], RunConfig]:
    from dance_flwr.runs.reader import read_result

    result = read_result(run)
    if result["method"] != "dance":
        raise UserError(
            f"{run}: expected a run of method 'dance', found {result['method']!r}, which keeps no evidence"
        )
    try:
        return result, parse(result["config"])
    except ConfigError as error:
        raise UserError(
            f"{run}: expected a run of this version, found another's configuration: {error}"
        ) from None


def _site(
    result: Mapping[str, Any], client: int | None, client_folder: Path | None, config: RunConfig
) -> Site:
    import torch

    if client_folder is None and result["partition_dir"] is None:
        raise UserError(
            "expected --client-folder: the clients of this run keep their evidence on their own machines"
        )
    folder = client_folder or Path(result["partition_dir"]) / f"client-{client}"
    return Site(folder, torch.device("cpu"), config.split_mode == "inductive")


def _model(run: Path, site: Site, config: RunConfig) -> Any:
    from dance_flwr.federation.client.client import shape_of
    from dance_flwr.methods import get_spec
    from dance_flwr.runs.reader import load_model

    shape = shape_of(site.text_dim, len(site.card.class_names), config)
    model = get_spec(config.method).make_client().build(shape, config)
    model.load_state_dict(load_model(run))
    return model


def _progress(bar: Any) -> Callable[[Mapping[str, Any]], None]:
    def show(row: Mapping[str, Any]) -> None:
        bar.update(row["round"] - bar.n)
        if row["val_accuracy"] is not None:
            bar.set_postfix_str(f"val accuracy {row['val_accuracy']:.4f}")

    return show
