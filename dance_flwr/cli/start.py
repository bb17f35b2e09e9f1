"""Start or resume a run from the command line, say how it goes, and print what came of it."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dance_flwr.cli.plan import print_plan
from dance_flwr.errors import ResumeError, UserError, counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.config.options import Value
    from dance_flwr.config.tree import RunConfig
    from dance_flwr.data.graphs.graph import TextGraph
    from dance_flwr.runs.simulation.in_process import OnRound

    Runner = Callable[[RunConfig, Path, OnRound], dict[str, Any]]


def start_run(
    values: "Mapping[str, Value]",
    run: "Runner | None" = None,
    dry_run: bool = False,
    track: Sequence[str] = (),
    compare: Sequence[str] = (),
) -> None:
    """Prepare the data of a new run, run it, and print its results.

    Parameters
    ----------
    values : flat keys of the configuration
    run : of `runner_of`; dry_run : only print the plan; track : names of trackers
    compare : methods to run after it on the same clients, in this process
    """
    from dance_flwr.config.outputs import check_folder
    from dance_flwr.config.plugins import METHODS
    from dance_flwr.config.tree import parse
    from dance_flwr.data.prepare import load_new
    from dance_flwr.runs.tracking import check_trackers
    from dance_flwr.terminal import bar

    check_trackers(track)
    METHODS.check(compare, "--compare")
    config, others = parse(values), [parse({**values, "method": name}) for name in compare]
    check_folder(Path(config.out), "`out`")
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
            print_plan(each)
        return
    is_named, config = bool(config.out), placed(config)  # before texts are encoded
    others = [placed(replace(each, out=f"{config.out}-{each.method}")) for each in others]
    _prepare(config, graph)
    result = _run(config, run, 0, track)
    for each in others:
        _run(each, None, 0, track)
    _print_results(config, result, [Path(each.out) for each in others], is_named)


def _prepare(config: "RunConfig", graph: "TextGraph | None") -> None:
    """Say what a new run does, and prepare its clients; `graph` as for `prepare`."""
    from dance_flwr.cli.results import headline
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


def _print_results(
    config: "RunConfig", result: Mapping[str, Any], others: Sequence[Path], is_named: bool
) -> None:
    """Print the results of a run, and write the page that compares it with others."""
    from dance_flwr.cli.results import summary
    from dance_flwr.runs.run import set_latest_run

    folder = Path(config.out)
    set_latest_run(folder)
    if others:
        from dance_flwr.config.paths import PAGE
        from dance_flwr.pages.run_page import report_run

        report_run(folder, others, page=folder / PAGE, log=lambda line: None)
    if is_named:
        print(f"result      {folder / 'result.json'}")
    for line in summary(folder, result, others):
        print(line)


def _pass_warnings(line: str) -> None:
    """Print what a reader must know of `prepare`, and not its steps."""
    if "warning  " in line or "waits for" in line or "take no part" in line:
        print(line, flush=True)


def resume_run(folder: Path, run: "Runner | None" = None, track: Sequence[str] = ()) -> None:
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
    _print_results(config, _run(config, run, point.round, track), [], True)


def runner_of(engine: str | None) -> "Runner | None":
    """Return what runs a federation: None for this process.

    Raises
    ------
    UserError : Ray is not installed
    """
    if engine != "ray":
        return None
    if find_spec("ray") is None:
        raise UserError(
            "--engine ray: expected Ray, found none; install it with `pip install "
            "'dance-flwr[simulation]'`, or leave the option out"
        )

    def run(config: "RunConfig", folder: Path, on_round: "OnRound") -> dict[str, Any]:
        from dance_flwr.runs.simulation.ray_engine import run_under_ray

        return run_under_ray(config, folder, on_round)

    return run


def _run(
    config: "RunConfig", run: "Runner | None", done: int, track: Sequence[str]
) -> dict[str, Any]:
    """Run all rounds after round `done`, with a bar on a terminal; return the result."""
    from dance_flwr.api.federating import round_bar
    from dance_flwr.cli.results import choice
    from dance_flwr.config.paths import HISTORY
    from dance_flwr.runs.locks import SERVER, exclusive
    from dance_flwr.runs.processes import stopping_in_order
    from dance_flwr.runs.resume import how_to_resume, resume_hint
    from dance_flwr.runs.run import set_latest_run
    from dance_flwr.runs.simulation.in_process import run_in_process
    from dance_flwr.runs.tracking import tracked
    from dance_flwr.terminal import duration

    folder = Path(config.out)
    set_latest_run(folder)  # now, so that `dance-flwr status latest` follows it
    try:
        with (
            stopping_in_order(),
            resume_hint(folder),
            round_bar(config.rounds, True, done) as move,
            tracked(track, folder, print) as also,
        ):

            def on_round(row: Mapping[str, Any]) -> None:
                move(row)
                also()

            with exclusive(folder, SERVER):
                result = (run or run_in_process)(config, folder, on_round)
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
