"""`dance-flwr config`: the configuration keys."""

from typing import Annotated

import typer

from dance_flwr.config.plugins import METHODS
from dance_flwr.errors import UserError

app = typer.Typer()


@app.command(name="config")
def show(
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="print the keys of this method", autocompletion=METHODS.names
        ),
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="print every key")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="print a JSON Schema of a file of keys, for editors")
    ] = False,
) -> None:
    """Print the keys that a run of any method may need, with defaults and meanings."""
    from dance_flwr.config import text

    if bool(method) + all_ + schema > 1:
        raise UserError("config: expected one of --method, --all and --schema, found several")
    if schema:
        typer.echo(text.json_schema())
    elif method:
        METHODS.get(method)  # an unknown name lists the choices
        typer.echo(text.method_tables([method]))
    else:
        typer.echo(text.all_tables() if all_ else text.common_tables())
