"""`dance-flwr report RUN`: the page of a run and trackers, once or again while it runs."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dance_flwr.errors import UserError
from dance_flwr.pages.document import Page, check_replaceable
from dance_flwr.pages.run_comparison import comparison
from dance_flwr.pages.run_sections import sections
from dance_flwr.runs.compared import compared_with, remember_compared
from dance_flwr.runs.facts import RunFacts, is_run, read_facts
from dance_flwr.runs.reader import validated, why_last_model
from dance_flwr.runs.tracking import Tracking, check_trackers, track
from dance_flwr.runs.units import duration, size
from dance_flwr.terminal import whole

if TYPE_CHECKING:  # opening clients is for runs that have ended
    from dance_flwr.api.prediction.confusion import Confusion

EVERY_SECONDS = 5.0
_MODE = 0o666  # before the umask, as other files of a run: it holds no text of a client
_MAX_MISSED = 12  # rewritings that may be missed before the page says so


def report_run(
    run: Path,
    others: Sequence[Path] = (),
    *,
    page: Path | None = None,
    trackers: Sequence[str] = (),
    every: float | None = None,
    log: Callable[[str], None] = print,
) -> None:
    """Write the page of a run, and hand the run to trackers.

    Parameters
    ----------
    others : runs that the page lays over this one, beside those of earlier calls
    page : the file; None = no page
    trackers : names of trackers
    every : seconds after which to do so again, until the run has ended, failed or was killed; until
        then the page reloads itself. None = once

    Raises
    ------
    UserError : there is no run, a file of it is damaged, `page` is something else than a page, or a
        tracker is missing or fails
    """
    check_trackers(trackers)
    trackings = [Tracking(name, run) for name in trackers]
    facts, overlaid = read_facts(run), _overlaid(run, others)
    if page:
        check_replaceable(page, _about(run, page))  # before trackers store anything
        remember_compared(run, list(overlaid))
    if every is not None and facts.runs:
        log(f"live        every {every:g} s until the run ends{f', {page}' if page else ''}")
    while every is not None and facts.runs:
        if page:
            run_page(facts, every, overlaid, _about(run, page)).write(page, _MODE)
        track(trackings, facts)
        time.sleep(every)
        facts = read_facts(run)
    # The end of the run, which the loop has read but not handed on.
    track(trackings, facts)
    for tracking in trackings:
        tracking.report(log)
    if page:
        run_page(facts, None, overlaid, _about(run, page)).write(page, _MODE)
        log(f"page        {page}: run {facts.status.state}, {facts.status.round} rounds")


def _overlaid(run: Path, others: Sequence[Path]) -> dict[Path, RunFacts | str]:
    """Return these runs and all that the run was compared with before, or why one is not shown."""
    folders = dict.fromkeys(other.resolve() for other in others)
    every: dict[Path, RunFacts | str] = {f: read_facts(f) for f in folders if f != run.resolve()}
    for folder in compared_with(run):
        # One that was named is read above, and its error is the user's.
        if folder in every:
            continue
        try:
            every[folder] = read_facts(folder) if is_run(folder) else "its folder is gone"
        except UserError as error:
            every[folder] = str(error)
    return every


def _about(run: Path, page: Path) -> str:
    """Return what tells the page of one run from that of another, wherever both are moved."""
    return f"run {os.path.relpath(run.resolve(), page.resolve().parent)}"


def run_page(
    facts: RunFacts,
    refresh_seconds: float | None = None,
    others: Mapping[Path, RunFacts | str] = MappingProxyType({}),
    about: str = "",
) -> Page:
    """Return the page of a run, as far as it went.

    Parameters
    ----------
    refresh_seconds : after which it reloads itself; None = never
    others : runs that are laid over it, by their folders; a text = why one is not shown
    about : of `Page`
    """
    status, confusion = facts.status, _confusion(facts)
    now = datetime.now(UTC)
    content: dict[str, Any] = {
        "status": status,
        "pairs": _pairs(facts, now),
        "sections": [
            *([comparison(facts, others)] if others else []),
            *sections(facts, confusion, _worth(facts)),
        ],
        "written": f"{now:%Y-%m-%d %H:%M:%S} UTC",
        "refresh": refresh_seconds,
        # A page cannot see that its writer was killed, so it knows when to be replaced at the
        # latest.
        "stale_at": round((now.timestamp() + _MAX_MISSED * refresh_seconds) * 1000)
        if refresh_seconds
        else 0,
    }
    # A page that will not change needs no script.
    scripts = ("run.js",) if refresh_seconds else ()
    title = f"Run {status.run}" if status.run else "A run that gathers its clients"
    return Page("run.html.j2", title, content, scripts=scripts, styles=("run.css",), about=about)


def _confusion(facts: RunFacts) -> "Confusion | str":
    """Return the confusion matrix of a finished run, or why it is not known."""
    if not facts.result:
        return ""
    from dance_flwr.api.prediction.confusion import confusion_matrix

    try:
        return confusion_matrix(Path(facts.status.folder), facts.result)
    except UserError as error:
        return str(error)


def _worth(facts: RunFacts) -> list[str]:
    """Return what joining was worth to each client; empty of a run without personal models."""
    if facts.result.get("config", {}).get("personal", "off") == "off":
        return []
    from dance_flwr.api.prediction.worth import with_cost, worth

    try:
        return [with_cost(row, facts.result) for row in worth(Path(facts.status.folder))]
    except UserError as error:
        return [str(error)]


def _pairs(facts: RunFacts, now: datetime) -> list[tuple[str, str]]:
    """Return the most important facts, as names and texts."""
    status, result, config = facts.status, facts.result, facts.config
    rounds = "?" if status.rounds is None else str(status.rounds)
    pairs = [("state", f"{status.state}: {status.reason}" if status.reason else status.state)]
    pairs += [("resume", status.resume)] if status.resume else []
    if config:
        pairs.append(("method", f"{status.method} on {facts.data}, {config['clients']} clients"))
    pairs.append(("round", f"{status.round} of {rounds}"))
    if status.test_accuracy is not None:
        nodes = f"{result['test_nodes']:,} test nodes, macro-F1 {result['test_macro_f1']:.4f}"
        pairs.append(("test accuracy", f"{status.test_accuracy:.4f} on {nodes}"))
    elif status.not_tested:
        pairs.append(("test accuracy", f"not measured: {status.not_tested}"))
    pairs += status.private.rows() if status.private else []
    if status.val_accuracy is not None:
        last = f"{status.val_accuracy:.4f} in round {status.val_round}"
        best = f"best {status.best_accuracy:.4f} in round {status.best_round}"
        pairs.append(("validation accuracy", f"{last}, {best}"))
    elif result and not validated(result):
        pairs.append(("validation accuracy", why_last_model(result)))
    if status.seconds_per_round:
        pairs.append(("time per round", duration(status.seconds_per_round)))
    if facts.runs and status.seconds_left is not None:
        end = now + timedelta(seconds=status.seconds_left)
        pairs.append(("time left", f"about {whole(status.seconds_left)}, until {end:%H:%M} UTC"))
    if result:
        pairs.append(("time of all rounds", duration(result["seconds_total"])))
    pairs.append(("models sent", f"{size(status.bytes_down)} down, {size(status.bytes_up)} up"))
    pairs.append(("folder", Path(status.folder).name))
    return pairs
