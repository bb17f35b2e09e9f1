"""`dance-flwr report`: scores and costs of a run, also as `run` prints them at its end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dance_flwr.cli.options import AsJson, ClientFolder, Trackers, print_json, run_argument
from dance_flwr.errors import UserError, counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from rich.table import Table

    from dance_flwr.config.tree import RunConfig

app = typer.Typer()


@app.command(rich_help_panel="Look")
def report(
    folders: Annotated[
        list[Path],
        run_argument("folder of a run, or `latest`; finished runs to compare it with", "RUN..."),
    ],
    track: Trackers = None,
    privacy: Annotated[
        bool,
        typer.Option("--privacy", help="print what messages held, and who could read it"),
    ] = False,
    worth: Annotated[
        bool,
        typer.Option("--worth", help="print what joining was worth to clients with own models"),
    ] = False,
    client_folder: ClientFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print scores and costs of a run, compare it with others, or pass it to trackers."""
    from dance_flwr.runs.result import read_result, short_result

    run, *others = (each.expanduser().resolve() for each in folders)
    options = {"--json": as_json, "--privacy": privacy, "--worth": worth, "--track": track}
    given = [name for name, value in options.items() if value]
    if len(given) > 1 or (given and others):
        raise UserError(
            f"report: expected one run and one of {', '.join(options)}, found "
            f"{counted(len(folders), 'run')} and {', '.join(given)}; leave some of them out"
        )
    if client_folder and not worth:
        raise UserError("--client-folder: expected together with --worth, found alone; add --worth")
    if as_json:
        print_json(short_result(read_result(run)))
    elif privacy:
        _print_privacy(read_result(run))
    elif worth:
        _print_worth(run, client_folder)
    elif track:
        from dance_flwr.runs.tracking import track_run

        for place in track_run(track, run):
            typer.echo(f"tracked     {place}")
    else:
        from dance_flwr.terminal import console

        against = [f"{other.name}: {_against(run, other)}" for other in others]
        console().print(accuracy_table(result := read_result(run)))
        for line in [*details(run, result), *against]:
            print(line)


def _print_privacy(result: Mapping[str, Any]) -> None:
    from dance_flwr.federation.wire.keys import DOWN
    from dance_flwr.runs import privacy_report
    from dance_flwr.terminal import wrapped

    for sentence in privacy_report.sentences(result):
        typer.echo(wrapped(sentence))
    messages = result["messages"]
    print_messages(messages, "What clients sent, and who could read it")
    print_messages(messages, "What the server sent, and who could read it", DOWN)


def print_messages(messages: Iterable[Mapping[str, Any]], title: str, way: str = "") -> None:
    """Print what the messages of one way held, of a run or of a site, and who could read it."""
    from dance_flwr.federation.wire.keys import UP
    from dance_flwr.runs import privacy_report
    from dance_flwr.terminal import wrapped

    way = way or UP
    typer.echo(f"\n{title}\n")
    for name, what, readers, number, length in privacy_report.table(messages, way):
        if number:
            sizes = f", {length} bytes of arrays and keys" if length != "0" else ""
            typer.echo(wrapped(f"{name}: {number} message{'s' * (number != '1')}{sizes}"))
        typer.echo(wrapped(f"  {what} -> {readers}", "    "))


def _print_worth(run: Path, client_folder: Path | None) -> None:
    from dance_flwr.api import evaluation
    from dance_flwr.terminal import console

    names = tuple(evaluation.MODELS.values())
    headings = ("client", "test nodes", *names)
    table = new_table(headings, headings, title="accuracy on test nodes, in %")
    sentences = []
    for row in evaluation.worth(run, client_folder):
        shares = [row.accuracy[name] for name in names]
        cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
        table.add_row(str(row.client), str(row.nodes), *cells)
        sentences.append(f"client {row.client}: {row.sentence}")
    console().print(table)
    for sentence in sentences:
        typer.echo(sentence)


def new_table(headings: Sequence[str], right: Sequence[str], title: str | None = None) -> "Table":
    """Return an empty table; `right` names the columns that are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def headline(config: "RunConfig", nodes: int) -> str:
    """Return in one line what a run does."""
    from dance_flwr.methods import evaluation

    what = "one model" if evaluation(config) == "global" else "a model each"
    return (
        f"{counted(config.clients, 'client')} {'trains' if config.clients == 1 else 'train'} "
        f"{what} with {config.method} on the {counted(nodes, 'text')} of "
        f"{Path(config.data).name} in {counted(config.rounds, 'round')}"
    )


def summary(folder: Path, result: Mapping[str, Any], others: Sequence[Path]) -> Iterator[str]:
    """Yield the main results of a run, beside those of other finished runs."""
    yield ""
    yield from _accuracy(result)
    for other in others:
        yield f"            {_against(folder, other)}"
    yield from under_noise(folder)
    yield from _what_left(result)
    yield ""
    yield "Next:"
    commands = {
        "report latest": "the table of clients, and what the run cost",
        "report latest --privacy": "every message: what it held, and who could read it",
    }
    if result["method"] == "dance" and result["partition_dir"]:
        commands = {"evidence page latest": "predictions with the text they rest on"} | commands
    for command, what in commands.items():
        yield f"  dance-flwr {command:26s}  # {what}"


def _accuracy(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the accuracy of a run beside that of its largest class, or why there is none."""
    from dance_flwr.runs.result import why_not_tested

    nodes, counts = result["test_nodes"], result["test_by_class"]["nodes"]
    if result["test_accuracy"] is None:
        yield f"accuracy    not measured: {why_not_tested(result)}"
        return
    tested = [row["test_accuracy"] for row in result["clients"] if row["test_nodes"]]
    # Under masks no client has a row.
    spread = f"; by client {min(tested):.1%} to {max(tested):.1%}" if len(tested) > 1 else ""
    yield f"accuracy    {result['test_accuracy']:.1%} of {nodes:,} test nodes{spread}"
    if counts:
        name = result["class_names"][counts.index(max(counts))]
        yield f"            {max(counts) / nodes:.1%} if all were called {name}, the largest class"


def under_noise(folder: Path) -> Iterator[str]:
    """Yield what is known of a run under differential privacy: epsilon spent, results of sites."""
    from dance_flwr.runs.run import read_status

    private = read_status(folder).private
    for name, text in private.rows() if private else ():
        yield f"{name:12s}{text}"


def _against(folder: Path, other: Path) -> str:
    from dance_flwr.api.evaluation import compare_runs
    from dance_flwr.errors import UserError
    from dance_flwr.runs.result import read_result

    try:
        found = compare_runs(folder, other)
    except UserError as error:
        return f"{read_result(other)['method']}: not compared: {error}"
    name = "each client alone" if found.other == "local-only" else found.other
    return f"{found.other_accuracy:.1%} by {name}: {found.verdict}"


def _what_left(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each client sent, by the run's record of messages, and what stayed local."""
    from dance_flwr.data.card import read_texts
    from dance_flwr.runs.privacy_report import sent as contents
    from dance_flwr.runs.result import sum_by_key
    from dance_flwr.terminal import size, wrapped

    sent = sum_by_key([row["bytes_up"] for row in result["history"]])
    sizes = list(dict.fromkeys(size(count) for count in sorted(sent.values()))) or ["0 B"]
    span = sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    left = f"left        each client: {span} of {', '.join(contents(result))}"
    yield wrapped(left, " " * 12, 110)
    folders = Path(result["partition_dir"]).glob("client-*")  # a run of this command has one
    every = [text for folder in folders for text in read_texts(folder)]
    texts = f"{counted(len(every), 'text')} ({size(sum(len(t.encode()) for t in every))})"
    calls = sum(result["tokens"]["llm"][name] for name in ("fresh_calls", "cached_calls"))
    asked = "; prompts with texts went to the language model that it chose" if calls else ""
    yield f"never left  {texts}, ids, edges, evidence and the label of any node{asked}"


def details(folder: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines below the table of clients: scores, device, tokens, files."""
    from dance_flwr.evidence.summaries.summary import summary_line
    from dance_flwr.runs.token_ledgers import ledger_lines
    from dance_flwr.terminal import pace

    if result["test_accuracy"] is None:
        yield from _accuracy(result)
    yield from under_noise(folder)
    yield f"macro-F1    {_score(result['test_macro_f1'])} on the test nodes, {choice(result)}"
    yield f"time        {pace(result['seconds_total'], len(result['history']))}"
    yield f"device      {', '.join(sorted(set(result['devices'])))}"
    for line in ledger_lines(result["tokens"]):
        yield f"tokens      {line}"
    if result["partition_dir"]:
        partition = Path(result["partition_dir"])
        if line := summary_line(partition, result["run"], int(result["config"]["clients"])):
            yield f"summaries   {line}"
    yield f"result      {folder / 'result.json'}"


def choice(result: Mapping[str, Any]) -> str:
    """Return why the model of the run is that of its round."""
    from dance_flwr.runs.result import validated, why_last_model

    if validated(result):
        return f"best validation in round {result['best_round']}"
    return f"{why_last_model(result)}, of round {result['best_round']}"


def accuracy_table(result: Mapping[str, Any]) -> "Table":
    """Return a table of the accuracy of each client and of all together."""
    headings = ("client", "nodes", "test nodes", "val accuracy", "test accuracy")
    table = new_table(headings, headings)
    for row in result["clients"]:
        first = (str(row["client"]), str(row.get("nodes") or "-"), str(row["test_nodes"]))
        table.add_row(*first, _score(row["val_accuracy"]), _score(row["test_accuracy"]))
    table.add_section()
    total = str(sum(result["nodes_per_client"]) or "-")
    scores = (_score(result["val_accuracy"]), _score(result["test_accuracy"]))
    table.add_row("overall", total, str(result["test_nodes"]), *scores)
    return table


def _score(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"
