"""What `dance-flwr run --dry-run` prints: the plan of a run."""

from typing import TYPE_CHECKING

from dance_flwr.errors import counted

if TYPE_CHECKING:  # `dance-flwr --help` needs none of these
    from rich.table import Table

    from dance_flwr.config.tree import RunConfig
    from dance_flwr.runs.plan import Calls


def print_plan(config: "RunConfig") -> None:
    """Print data, clients, method, rounds, and what a language model would be asked.

    If it would be asked, the data is prepared, as its calls are counted at the clients.

    Raises
    ------
    UserError : the data or the encoder is missing, or the settings cannot be used
    """
    from dance_flwr.config.paths import MANIFEST
    from dance_flwr.data.prepare import partition_folder, prepare
    from dance_flwr.runs.plan import asks, planned_calls
    from dance_flwr.terminal import console

    print(
        f"plan        {config.method} on {config.data}, {counted(config.rounds, 'round')}, "
        f"{counted(config.clients, 'client')} ({config.partition}), seed {config.seed}"
    )
    # Without a language model the plan needs no data.
    if not asks(config):
        folder = partition_folder(config)
        state = "found" if (folder / MANIFEST).is_file() else "to be made"
        print(f"partition   {folder} ({state})")
        print("model calls none")
    else:
        calls = planned_calls(config, prepare(config, print).folder)
        console().print(calls_table(calls))
        print(f"model calls {calls_text(calls)}")
    print("dry run     nothing was run")


def calls_table(calls: "list[Calls]") -> "Table":
    """Return a line for each client, as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for heading in ("client", "nodes", "calls", "tokens"):
        table.add_column(heading, justify="right")
    for client in calls:
        numbers = client.client, client.nodes, client.calls, client.tokens
        table.add_row(*(f"{number:,}" for number in numbers))
    return table


def calls_text(calls: "list[Calls]") -> str:
    """Return the sum over clients in one line."""
    capped = sum(client.capped for client in calls)
    rest = f"; {counted(capped, 'client')} at llm.max-calls or llm.max-tokens" if capped else ""
    return (
        f"at most {sum(client.calls for client in calls):,} with "
        f"{counted(sum(client.tokens for client in calls), 'token')} of all clients; what a "
        "client's cache "
        f"holds costs nothing{rest}"
    )
