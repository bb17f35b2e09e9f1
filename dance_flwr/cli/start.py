"""Start or resume a run from the command line, say how it goes, and print what came of it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dance_flwr.cli.plan import print_plan
from dance_flwr.errors import ResumeError

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from dance_flwr.config.options import Value
    from dance_flwr.config.tree import RunConfig


def start_run(
    values: "Mapping[str, Value]",
    in_process: bool,
    dry_run: bool = False,
    track: Sequence[str] = (),
    compare: Sequence[str] = (),
) -> None:
    """Prepare the data of a new run, run it, and print its results.

    Parameters
    ----------
    values : flat keys of the configuration
    in_process : without Flower's engine; dry_run : only print the plan; track : names of trackers
    compare : methods to run after it on the same clients, in this process
    """
    from dance_flwr.config.outputs import check_folder
    from dance_flwr.config.paths import MANIFEST
    from dance_flwr.config.tree import parse
    from dance_flwr.data.partition import read_manifest
    from dance_flwr.data.prepare import load, load_new, partition_folder, prepare
    from dance_flwr.runs.tracking import check_trackers

    check_trackers(track)
    config, others = parse(values), [parse({**values, "method": name}) for name in compare]
    check_folder(Path(config.out), "`out`")
    # Before torch is imported, which takes longer than to read a graph without labels.
    graph = None if dry_run else load_new(config)

    from dance_flwr.cli.results import headline
    from dance_flwr.federation.privacy.dp import affordable_rounds
    from dance_flwr.methods import check_method
    from dance_flwr.runs.simulation.app_folder import check_engine
    from dance_flwr.runs.simulation.engine import placed

    for each in (config, *others):
        check_method(each)
        affordable_rounds(each)  # refuses a budget below one round before texts are encoded
    if dry_run:
        for each in (config, *others):
            print_plan(each)
        return
    if not in_process:
        check_engine()
    is_named, config = bool(config.out), placed(config)  # before texts are encoded
    others = [placed(replace(each, out=f"{config.out}-{each.method}")) for each in others]
    manifest, start = partition_folder(config) / MANIFEST, time.monotonic()
    if is_made := manifest.is_file():
        nodes = int(read_manifest(manifest)["num_nodes"])
    else:
        nodes = (graph := graph or load(config)).num_nodes
    print(headline([config, *others], nodes, in_process, not is_made), flush=True)
    prepare(config, _pass_warnings, graph)
    _done("texts", "read in an earlier run" if is_made else "each read once", start)
    result = _run(config, in_process, 0, track)
    for each in others:
        _run(each, True, 0, track)
    _print_results(config, result, [Path(each.out) for each in others], is_named)


def _print_results(
    config: "RunConfig", result: Mapping[str, Any], others: Sequence[Path], is_named: bool
) -> None:
    """Print the results of a run, and write the page that compares it with others."""
    from dance_flwr.cli.results import summary
    from dance_flwr.runs.latest import remember

    folder = Path(config.out)
    remember(folder)
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


def _done(phase: str, text: str, start: float) -> None:
    """Print the line of a phase that began at `start`, with the seconds that it took."""
    from dance_flwr.runs.units import duration

    print(f"{phase:12s}{text}, {duration(time.monotonic() - start)}", flush=True)


def resume_run(folder: Path, in_process: bool, track: Sequence[str] = ()) -> None:
    """Resume the run in `folder` after its last whole round, with its own configuration.

    Raises
    ------
    ResumeError : there is nothing to resume, or it cannot be resumed
    """
    from dance_flwr.runs.resume import load_resumable
    from dance_flwr.runs.simulation.app_folder import check_engine
    from dance_flwr.runs.simulation.engine import wait_until_left

    folder = folder.expanduser().resolve()
    # The server of a run that was killed a moment ago is still being stopped.
    wait_until_left(folder)
    point = load_resumable(folder)
    if not point.partition:
        raise ResumeError(
            f"{folder}: expected a run on data of this machine, found one whose clients hold their "
            f"own data; resume it with `dance-flwr deploy run --resume {folder}`"
        )
    if not in_process:
        check_engine()
    point.prepare_partition(_pass_warnings)
    print(
        f"resume      {point.run} in {folder}, {point.round} of {point.config.rounds} rounds done"
    )
    config = replace(point.config, out=str(folder), resume=True)
    _print_results(config, _run(config, in_process, point.round, track), [], True)


def _run(config: "RunConfig", in_process: bool, done: int, track: Sequence[str]) -> dict[str, Any]:
    """Run all rounds after round `done`, with a bar on a terminal; return the result."""
    from dance_flwr.api.federating import round_bar
    from dance_flwr.cli.results import choice
    from dance_flwr.events import no_bar
    from dance_flwr.runs.latest import remember
    from dance_flwr.runs.locks import SERVER, exclusive
    from dance_flwr.runs.resume import how_to_resume, resume_hint
    from dance_flwr.runs.simulation.engine import run_in_process, run_under_flower
    from dance_flwr.runs.simulation.process_tree import stopping_in_order
    from dance_flwr.runs.tracking import tracked

    folder, start = Path(config.out), time.monotonic()
    remember(folder)  # now, so that `dance-flwr status latest` follows it
    visible = not no_bar() and sys.stdout.isatty()
    try:
        with (
            stopping_in_order(),
            resume_hint(folder),
            round_bar(config.rounds, visible, done) as move,
            tracked(track, folder, print) as also,
        ):

            def on_round(row: Mapping[str, Any]) -> None:
                move(row)
                also()

            if in_process:
                with exclusive(folder, SERVER):
                    result = run_in_process(config, folder, on_round)
            else:
                result = run_under_flower(config, folder, on_round)
    except KeyboardInterrupt:
        print(how_to_resume(folder), file=sys.stderr)
        raise
    _done("training", f"{config.method}, {len(result['history'])} rounds, {choice(result)}", start)
    return result
