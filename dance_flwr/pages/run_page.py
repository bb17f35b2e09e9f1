"""`dance-flwr report RUN`: write the page of a run and send it to trackers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dance_flwr.api.evaluation import Worth, worth
from dance_flwr.config.sections import ALONE, PERSONAL
from dance_flwr.errors import UserError, counted
from dance_flwr.metrics import wilson_interval
from dance_flwr.pages.document import Page, check_replaceable
from dance_flwr.pages.run_sections import (
    accuracy_chart,
    client_names,
    comparison,
    digits_of,
    left_clients,
    percent,
    sections,
)
from dance_flwr.runs.result import validated
from dance_flwr.runs.run import Run, compared_runs, is_run, read_run, set_compared_runs
from dance_flwr.runs.tracking import Tracking, check_trackers, track
from dance_flwr.terminal import duration, size, whole

_MODE = 0o666  # before the umask, as for other files of a run: no text of a client is on the page


def report_run(
    run: Path,
    others: Sequence[Path] = (),
    *,
    page: Path | None = None,
    trackers: Sequence[str] = (),
    log: Callable[[str], None] = print,
) -> None:
    """Write the page of a run, finished or not, and send the run to trackers.

    Parameters
    ----------
    others : runs to compare with, in addition to those of earlier calls
    page : file of the page; None = no page
    trackers : names of trackers

    Raises
    ------
    UserError : there is no run, one of its files is damaged, `page` is another file, or a
        tracker is missing or fails
    """
    check_trackers(trackers)
    trackings = [Tracking(name) for name in trackers]
    facts, overlaid = read_run(run), _overlaid(run, others)
    if page:
        check_replaceable(page)  # before trackers store anything
    track(trackings, facts)
    for tracking in trackings:
        log(f"tracked     {tracking.place}")
    if page:
        set_compared_runs(run, list(overlaid))
        run_page(facts, overlaid).write(page, _MODE)
        log(f"page        {page}: run {facts.status.state}, {counted(facts.status.round, 'round')}")


def _overlaid(run: Path, others: Sequence[Path]) -> dict[Path, Run | str]:
    folders = dict.fromkeys(other.resolve() for other in others)
    every: dict[Path, Run | str] = {f: read_run(f) for f in folders if f != run.resolve()}
    for folder in compared_runs(run):
        # A run that the user names now was read above, where its error is raised.
        if folder in every:
            continue
        try:
            every[folder] = read_run(folder) if is_run(folder) else "its folder is gone"
        except UserError as error:
            every[folder] = str(error)
    return every


def run_page(facts: Run, others: Mapping[Path, Run | str] = MappingProxyType({})) -> Page:
    """Return the page of a run, finished or not.

    Parameters
    ----------
    others : compared runs by folder; a string says why one is not shown
    """
    status, now = facts.status, datetime.now(UTC)
    joining, remarks = _worth(facts)
    runs = [other for other in others.values() if isinstance(other, Run)]
    shown = sections(facts, joining, runs) if facts.config else []
    remarks = [
        *remarks,
        *(
            f"The run in {folder.name} was compared, too, and is not shown: {why}."
            for folder, why in others.items()
            if isinstance(why, str)
        ),
    ]
    content: dict[str, Any] = {
        "status": status,
        "heading": f"{status.method} on {facts.data}" if facts.config else "A run without a round",
        "subtitle": _subtitle(facts),
        "score": _score(facts),
        "result": facts.result,
        "comparison": comparison(facts, runs) if facts.result else None,
        # Clients that have also trained alone need no run to be compared with.
        "suggest_alone": not (joining or "local-only" in (run.status.method for run in runs)),
        "chart": accuracy_chart([facts, *runs]),
        "absent": _absent(facts),
        "pairs": _pairs(facts, now),
        "sections": [part for part in shown if part.tables],
        # Sentences without a table need no section.
        "remarks": [
            *remarks,
            *(s for part in shown if not part.tables for s in part.sentences),
            *(left_clients(facts) if facts.config else ()),
        ],
        "written": f"{now.day} {now:%B %Y, %H:%M} UTC",
    }
    title = f"{content['heading']}, {Path(status.folder).name}"
    return Page("run.html.j2", title, content, styles=("run.css",))


def _score(facts: Run) -> str:
    accuracy, nodes = facts.status.test_accuracy, facts.result.get("test_nodes", 0)
    if accuracy is None or not nodes:
        return ""
    right, digits = round(accuracy * nodes), digits_of(nodes)
    low, high = wilson_interval(right, nodes)
    return (
        f"{right} of {counted(nodes, 'test node')} right; 95 % interval {100 * low:.{digits}f} to "
        f"{100 * high:.{digits}f} %; macro-F1 {facts.result['test_macro_f1']:.2f}."
    )


def _worth(facts: Run) -> tuple[Sequence[Worth], Sequence[str]]:
    """Return what joining was worth to each client, or a remark why that is not known.

    Both are empty for a run without personal models.
    """
    if ALONE not in PERSONAL.get(facts.result.get("config", {}).get("personal", "off"), ()):
        return (), ()
    try:
        return list(worth(Path(facts.status.folder))), ()
    except UserError as error:
        return (), [f"What joining was worth: {error}"]


def _subtitle(facts: Run) -> str:
    parts = []
    if config := facts.config:
        parts = [counted(int(config["clients"]), "client")]
        parts += [f"partition {config['partition']}"] if facts.partition else []
        parts += [f"seed {config['seed']}"]
    return ", ".join([*parts, Path(facts.status.folder).name])


def _absent(facts: Run) -> list[str]:
    names = client_names(facts)
    return [
        f"{names[gone.client]} did not take part in the last round: {gone.reason}"
        for gone in facts.status.absent
    ]


def _pairs(facts: Run, now: datetime) -> list[tuple[str, str]]:
    status, result, private = facts.status, facts.result, facts.privacy
    rounds = "" if status.rounds is None else f" of {status.rounds}"
    pairs = [("rounds", f"{status.round}{rounds}")]
    if result and status.best_accuracy is not None:
        best = f"{percent(status.best_accuracy)} in round {status.best_round}"
        pairs.append(("best validation accuracy", best))
    elif result and not validated(result):
        pairs.append(("best validation accuracy", "no round was validated"))
    pace = f", {duration(status.seconds_per_round)} a round" if status.seconds_per_round else ""
    if facts.runs and status.seconds_left is not None:
        end = now + timedelta(seconds=status.seconds_left)
        left = f"about {whole(status.seconds_left)}{pace}, until {end:%H:%M} UTC"
        pairs.append(("time left", left))
    elif pace:
        seconds = result.get("seconds_total") or sum(row.round_seconds for row in facts.rows)
        pairs.append(("time", f"{duration(seconds)}{pace}"))
    if facts.rows:
        sent = f"{size(status.bytes_down)} down, {size(status.bytes_up)} up"
        pairs.append(("models sent", sent))
    if private:
        pairs.append(("secure aggregation", "on" if private["secure_aggregation"] else "off"))
        pairs.append(("differential privacy", private["dp"]))
    return pairs + (status.private.rows() if status.private else [])
