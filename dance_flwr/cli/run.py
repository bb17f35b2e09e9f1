"""`dance-flwr run`, `prepare` and `encode`: prepare the data, run a federation, or resume one."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.options import Clients, ConfigFiles, OptionalGraph, Seed, Settings, Trackers
from dance_flwr.cli.plan import print_plan
from dance_flwr.errors import ResumeError, UserError

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from rich.table import Table

    from dance_flwr.config.options import Value
    from dance_flwr.config.tree import RunConfig

app = typer.Typer()


@app.command()
def run(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    clients: Clients = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for result.json and the model")
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="run the clients one after another, without Ray")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the run in --out, finished or not")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="folder of an interrupted run, the one with history.jsonl"
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="print the plan and the calls of a language model, run nothing"
        ),
    ] = False,
    track: Trackers = None,
) -> None:
    """Prepare the data, run the federation and print the accuracy of each client.

    With --resume, continue a run that was interrupted.
    """
    keys = {"data": data, "clients": clients, "seed": seed, "out": str(out) if out else None}
    keys["overwrite"] = overwrite or None
    if resume is None:
        named = {key: value for key, value in keys.items() if value is not None}
        start_run(_values_of(config, set_) | named, in_process, dry_run, track or [])
        return
    options = {"config": config, "set": set_, **keys, "dry-run": dry_run or None}
    extra = [f"--{name}" for name, value in options.items() if value is not None]
    if extra:
        raise UserError(
            "--resume: expected no other option than --in-process and --track, found "
            f"{', '.join(extra)}; "
            "a run resumes with its own configuration, so omit them"
        )
    resume_run(resume, in_process, track or [])


@app.command()
def prepare(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    clients: Clients = None,
    seed: Seed = None,
) -> None:
    """Encode the texts and write the client folders, without running anything."""
    from dance_flwr.config.reading import read_config
    from dance_flwr.data import prepare as preparation

    named = {"data": data, "clients": clients, "seed": seed}
    values = {key: value for key, value in named.items() if value is not None}
    preparation.prepare(read_config(config or [], set_ or [], values), typer.echo)


@app.command()
def encode(
    folder: Annotated[
        Path, typer.Argument(metavar="CLIENT_FOLDER", help="folder of one client, `client-K/`")
    ],
    config: ConfigFiles = None,
    set_: Settings = None,
) -> None:
    """Encode the texts of one client folder that `partition make --no-encode` wrote."""
    from dance_flwr.config.reading import read_config
    from dance_flwr.data.client_folder import encode_client
    from dance_flwr.data.prepare import text_bank

    encode_client(folder, text_bank(read_config(config or [], set_ or [], {})), typer.echo)


def _values_of(files: list[Path] | None, pairs: list[str] | None) -> "dict[str, Value]":
    """Return the flat keys of TOML files and KEY=VALUE pairs; later sources win.

    Raises
    ------
    UserError : a file cannot be read, or one sets what an option of the command decides
    """
    from dance_flwr.config.reading import read_values

    values = read_values(files or [], pairs or [])
    for key, option in (("resume", "--resume RUN"), ("overwrite", "--overwrite")):
        if values.get(key):
            raise UserError(
                f"{key}: expected an option, found a key; use `dance-flwr run {option}`"
            )
    return values


def start_run(
    values: "Mapping[str, Value]",
    in_process: bool,
    dry_run: bool = False,
    track: Sequence[str] = (),
) -> None:
    """Prepare the data of a new run, run it, and print its results.

    Parameters
    ----------
    values : flat keys of the configuration
    in_process : without Flower's engine; dry_run : only print the plan; track : names of trackers

    Raises
    ------
    UserError : the configuration cannot be used, or the run fails
    """
    from dance_flwr.config.outputs import check_folder
    from dance_flwr.config.tree import parse
    from dance_flwr.data.prepare import load_new, prepare
    from dance_flwr.runs.tracking import check_trackers

    check_trackers(track)
    config = parse(values)
    check_folder(Path(config.out), "`out`")
    # Before torch is imported, which takes longer than to read a graph without labels.
    graph = None if dry_run else load_new(config, print)

    from dance_flwr.federation.privacy.dp import affordable_rounds
    from dance_flwr.methods import check_method
    from dance_flwr.runs.simulation.app_folder import check_engine
    from dance_flwr.runs.simulation.engine import placed

    check_method(config)
    affordable_rounds(config)  # refuses a budget below one round before texts are encoded
    if dry_run:
        print_plan(config)
        return
    if not in_process:
        check_engine()
    config = placed(config)  # before texts are encoded
    _run(config, prepare(config, print, graph).folder, in_process, 0, track)


def resume_run(folder: Path, in_process: bool, track: Sequence[str] = ()) -> None:
    """Resume the run in `folder` after its last whole round, with its own configuration.

    Raises
    ------
    ResumeError : there is nothing to resume, or it cannot be resumed
    """
    from dataclasses import replace

    from dance_flwr.runs.resume import load_resumable
    from dance_flwr.runs.simulation.app_folder import check_engine

    folder = folder.expanduser().resolve()
    point = load_resumable(folder)
    if not point.partition:
        raise ResumeError(
            f"{folder}: expected a run on data of this machine, found one whose clients hold their "
            f"own data; resume it with `dance-flwr deploy run --resume {folder}`"
        )
    if not in_process:
        check_engine()
    prepared = point.prepare_partition(print)
    print(
        f"resume      {point.run} in {folder}, {point.round} of {point.config.rounds} rounds done"
    )
    config = replace(point.config, out=str(folder), resume=True)
    _run(config, prepared.folder, in_process, point.round, track)


def _run(
    config: "RunConfig", partition: Path, in_process: bool, done: int, track: Sequence[str]
) -> None:
    """Run all rounds after round `done` with a progress bar, then print results and paths."""
    from rich.console import Console
    from tqdm import tqdm

    from dance_flwr.events import no_bar
    from dance_flwr.runs.locks import SERVER, exclusive
    from dance_flwr.runs.resume import how_to_resume, resume_hint
    from dance_flwr.runs.simulation.engine import run_in_process, run_under_flower
    from dance_flwr.runs.simulation.process_tree import stopping_in_order
    from dance_flwr.runs.token_ledgers import ledger_lines
    from dance_flwr.runs.tracking import tracked

    folder = Path(config.out)
    engine = "in this process" if in_process else "under Flower's simulation engine"
    print(
        f"run         {config.method}, {config.rounds} rounds, {config.clients} clients, {engine}",
        flush=True,
    )
    bar = tqdm(total=config.rounds, initial=done, unit="round", desc="rounds", disable=no_bar())
    try:
        with stopping_in_order(), resume_hint(folder), bar, tracked(track, folder, print) as also:
            on_round = _progress(bar, also)
            if in_process:
                with exclusive(folder, SERVER):
                    result = run_in_process(config, folder, on_round)
            else:
                result = run_under_flower(config, folder, on_round)
    except KeyboardInterrupt:
        print(how_to_resume(folder), file=sys.stderr)
        raise
    Console().print(accuracy_table(result))
    print(f"macro-F1    {_score(result['test_macro_f1'])} on the test nodes, {_choice(result)}")
    print(f"device      {', '.join(sorted(set(result['devices'])))}")
    for line in ledger_lines(result["tokens"]):
        print(f"tokens      {line}")
    example = partition / "client-0" / "runs" / result["run"] / "evidence" / "example.txt"
    if example.is_file():
        print(f"evidence    {example}")
    for line in _summary_lines(config, partition, result["run"]):
        print(line)
    print(f"result      {folder / 'result.json'}")


def _choice(result: Mapping[str, Any]) -> str:
    """Return why the model of the run is that of its round."""
    from dance_flwr.runs.reader import validated, why_last_model

    if validated(result):
        return f"best validation in round {result['best_round']}"
    return f"{why_last_model(result)}, of round {result['best_round']}"


def _summary_lines(config: "RunConfig", partition: Path, run: str) -> list[str]:
    """Return what the clients' summaries, which this machine keeps, are made of; else nothing."""
    from dance_flwr.llm.config import CORE, LlmConfig

    if LlmConfig.of(config).summaries != CORE:
        return []
    from dance_flwr.evidence.summaries.statistics import summary_lines

    return summary_lines(partition, run, config.clients)


def accuracy_table(result: Mapping[str, Any]) -> "Table":
    """Return the accuracy of each client and of all together, where it has such nodes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from dance_flwr.runs.reader import nodes_of

    table = Table(box=SIMPLE_HEAD)
    for heading in ("client", "nodes", "test nodes", "val accuracy", "test accuracy"):
        table.add_column(heading, justify="right")
    for row in result["clients"]:
        nodes = nodes_of(row, result)
        first = (str(row["client"]), "-" if nodes is None else str(nodes), str(row["test_nodes"]))
        table.add_row(*first, _score(row["val_accuracy"]), _score(row["test_accuracy"]))
    table.add_section()
    total = str(sum(result["nodes_per_client"]))
    scores = (_score(result["val_accuracy"]), _score(result["test_accuracy"]))
    table.add_row("overall", total, str(result["test_nodes"]), *scores)
    return table


def _score(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def _progress(bar: Any, also: Callable[[], None]) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that moves the bar on by the row of a round, then calls `also`."""

    def update(row: Mapping[str, Any]) -> None:
        bar.update(row["round"] - bar.n)
        if row["val_accuracy"] is not None:
            bar.set_postfix_str(f"val accuracy {row['val_accuracy']:.4f}")
        also()

    return update
