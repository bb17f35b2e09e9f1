"""`dance-flwr run` and `demo`: start or resume a run, say how it goes, and print its results."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from dance_flwr.cli.options import (
    Clients,
    ConfigFiles,
    OptionalGraph,
    Seed,
    Settings,
    Trackers,
    WithKeys,
    run_folder,
    runs,
)
from dance_flwr.config.plugins import METHODS
from dance_flwr.errors import ResumeError, UserError, counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.config.options import Value
    from dance_flwr.config.tree import RunConfig
    from dance_flwr.data.graphs.graph import TextGraph

app = typer.Typer()


@app.command(rich_help_panel="Run")
def demo() -> None:
    """Run five clients on a small built-in graph, then each of them alone, in about a minute."""
    start_run({}, compare=["local-only"])


@app.command(cls=WithKeys, rich_help_panel="Run")
def run(
    config: ConfigFiles = None,
    set_: Settings = None,
    data: OptionalGraph = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="name of a method, of `dance-flwr list methods`", autocompletion=METHODS.names
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="number of communication rounds")] = None,
    clients: Clients = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for result.json and the model")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            click_type=click.Choice(("in-process", "ray")),
            help="how clients run: one after the other (in-process, the default), or under "
            "Flower's simulation runtime, as many at once as there are cores or GPUs (ray)",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the run in --out, finished or not")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            parser=run_folder,
            help="folder of an interrupted run, or `latest`",
            autocompletion=runs,
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD...",
            help="also run these methods, one after the other",
            autocompletion=METHODS.names,
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
    """Run a federation on this machine, and other methods beside it.

    Says how accurate the model is and what left the clients. With --compare, other methods run on
    the same clients, with a verdict on each. With --resume, continue a run that was interrupted.
    """
    from dance_flwr.config.text import read_values

    if engine == "ray" and find_spec("ray") is None:
        raise UserError(
            "--engine ray: expected Ray, found none; install it with `pip install "
            "'dance-flwr[simulation]'`, or leave the option out"
        )
    keys = {"data": data, "method": method, "rounds": rounds, "clients": clients, "seed": seed}
    keys |= {"out": str(out) if out else None, "overwrite": overwrite or None}
    if resume is not None:
        options = {"config": config, "set": set_, **keys}
        options |= {"dry-run": dry_run or None, "compare": compare or None}
        if extra := [f"--{name}" for name, value in options.items() if value is not None]:
            raise UserError(
                "--resume: expected no other option than --engine and --track, found "
                f"{', '.join(extra)}; a run resumes with its own configuration, so omit them"
            )
        resume_run(resume, engine, track or [])
        return
    values = read_values(config or [], set_ or [])
    for key, option in (("resume", "--resume RUN"), ("overwrite", "--overwrite")):
        if values.get(key):
            raise UserError(
                f"{key}: expected an option, found a key; use `dance-flwr run {option}`"
            )
    values |= {key: value for key, value in keys.items() if value is not None}
    start_run(values, engine, dry_run, track or [], compare or [])


def start_run(
    values: "Mapping[str, Value]",
    engine: str | None = None,
    dry_run: bool = False,
    track: Sequence[str] = (),
    compare: Sequence[str] = (),
) -> None:
    """Prepare the data of a new run, run it, and print its results.

    Parameters
    ----------
    values : flat keys of the configuration
    engine : as of `run`; dry_run : only print the plan; track : names of trackers
    compare : methods to run after it on the same clients, in this process
    """
    from dance_flwr.config.tree import parse
    from dance_flwr.data.prepare import load_new
    from dance_flwr.runs.tracking import check_trackers
    from dance_flwr.terminal import bar

    check_trackers(track)
    METHODS.check(compare, "--compare")
    config, others = parse(values), [parse({**values, "method": name}) for name in compare]
    with bar("start"):
        # Before torch is imported, which takes longer than to read a graph without labels.
        graph = None if dry_run else load_new(config)

        from dance_flwr.federation.privacy.dp import affordable_rounds
        from dance_flwr.methods import check_method
        from dance_flwr.runs.simulation.in_process import placed

    for each in (config, *others):
        check_method(each)
        affordable_rounds(each)  # refuses a budget below one round before texts are encoded
    if dry_run:
        for each in (config, *others):
            _print_plan(each)
        return
    is_named, config = bool(config.out), placed(config)  # before texts are encoded
    others = [placed(replace(each, out=f"{config.out}-{each.method}")) for each in others]
    _prepare(config, graph)
    result = _run(config, engine, 0, track)
    for each in others:
        _run(each, None, 0, track)
    _print_results(config, result, [Path(each.out) for each in others], is_named)


def resume_run(folder: Path, engine: str | None = None, track: Sequence[str] = ()) -> None:
    """Resume the run in `folder` after its last whole round, with its own configuration.

    Raises
    ------
    ResumeError : there is nothing to resume, or it cannot be resumed
    """
    from dance_flwr.terminal import bar

    folder = folder.expanduser().resolve()
    with bar("start"):
        from dance_flwr.runs.locks import wait_until_left
        from dance_flwr.runs.resume import load_resumable

        # The server of a run that was killed a moment ago is still being stopped.
        wait_until_left(folder)
        point = load_resumable(folder)
    if not point.partition:
        raise ResumeError(
            f"{folder}: expected a run on data of this machine, found one whose clients hold their "
            f"own data; resume it with `dance-flwr deploy run --resume {folder}`"
        )
    point.prepare_partition(_pass_warnings)
    print(
        f"resume      {point.run} in {folder}, {point.round} of "
        f"{counted(point.config.rounds, 'round')} done"
    )
    config = replace(point.config, out=str(folder), resume=True)
    _print_results(config, _run(config, engine, point.round, track), [], True)


def _print_plan(config: "RunConfig") -> None:
    """Print data, clients, method, rounds, and what a language model would be asked.

    If it would be asked, the data is prepared, as its calls are counted at the clients.
    """
    from dance_flwr.config.paths import MANIFEST
    from dance_flwr.data.prepare import partition_folder, prepare
    from dance_flwr.runs.plan import asks, planned_calls

    print(
        f"plan        {config.method} on {config.data}, {counted(config.rounds, 'round')}, "
        f"{counted(config.clients, 'client')} ({config.partition}), seed {config.seed}"
    )
    if not asks(config):
        folder = partition_folder(config)
        state = "found" if (folder / MANIFEST).is_file() else "to be made"
        print(f"partition   {folder} ({state})\nmodel calls none")
    else:
        calls = planned_calls(config, prepare(config, print).folder)
        for own in calls:
            capped = ", then llm.max-calls or llm.max-tokens is reached" if own.capped else ""
            print(
                f"client {own.client:<5}{counted(own.nodes, 'node')}, at most "
                f"{counted(own.calls, 'call')} with {counted(own.tokens, 'token')}{capped}"
            )
        print(
            f"model calls at most {sum(own.calls for own in calls):,} with "
            f"{counted(sum(own.tokens for own in calls), 'token')} of all clients; what a client's "
            "cache holds costs nothing"
        )
    print("dry run     nothing was run")


def _prepare(config: "RunConfig", graph: "TextGraph | None") -> None:
    """Print what a new run does and prepare its clients; `graph` as in `prepare`."""
    from dance_flwr.cli.report import headline
    from dance_flwr.config.paths import MANIFEST
    from dance_flwr.data.partition import read_manifest
    from dance_flwr.data.prepare import load, partition_folder, prepare
    from dance_flwr.terminal import bar, duration

    manifest, start = partition_folder(config) / MANIFEST, time.monotonic()
    if is_made := manifest.is_file():
        nodes = int(read_manifest(manifest)["num_nodes"])
    else:
        nodes = (graph := graph or load(config)).num_nodes
    print(headline(config, nodes), flush=True)
    with bar("texts"):
        prepare(config, _pass_warnings, graph)
    found = "read in an earlier run" if is_made else "each read once"
    print(f"texts       {found}, {duration(time.monotonic() - start)}", flush=True)


def _pass_warnings(line: str) -> None:
    """Print the warnings of `prepare` and leave out its steps."""
    if "warning  " in line or "waits for" in line or "take no part" in line:
        print(line, flush=True)


def _run(
    config: "RunConfig", engine: str | None, done: int, track: Sequence[str]
) -> dict[str, Any]:
    from dance_flwr.cli.report import choice
    from dance_flwr.config.paths import HISTORY
    from dance_flwr.runs.locks import SERVER, exclusive
    from dance_flwr.runs.resume import how_to_resume, resume_hint
    from dance_flwr.runs.run import set_latest_run
    from dance_flwr.runs.simulation import in_process, ray_engine
    from dance_flwr.runs.tracking import tracked
    from dance_flwr.terminal import duration, round_bar

    folder = Path(config.out)
    try:
        with (
            resume_hint(folder),
            round_bar(config.rounds, True, done) as move,
            tracked(track, folder, print),
            exclusive(folder, SERVER),
        ):
            set_latest_run(folder)  # now, so that `dance-flwr status latest` follows it
            if engine == "ray":
                result = ray_engine.run_under_ray(config, folder, move)
            else:
                result = in_process.run_in_process(config, folder, move)
    except FileNotFoundError as error:
        if error.filename != str(folder / HISTORY):
            raise
        # Only a removed folder lacks it: such a run would compute for nobody.
        raise UserError(
            f"{folder}: expected the folder of this run, found it removed; the run was stopped"
        ) from None
    except KeyboardInterrupt:
        print(how_to_resume(folder), file=sys.stderr)
        raise
    rounds, seconds = counted(len(result["history"]), "round"), duration(result["seconds_total"])
    print(f"training    {config.method}, {rounds}, {choice(result)}, {seconds}", flush=True)
    return result


def _print_results(
    config: "RunConfig", result: Mapping[str, Any], others: Sequence[Path], is_named: bool
) -> None:
    from dance_flwr.cli.report import summary
    from dance_flwr.runs.run import set_latest_run

    folder = Path(config.out)
    set_latest_run(folder)
    if is_named:
        print(f"result      {folder / 'result.json'}")
    for line in summary(folder, result, others):
        print(line)
