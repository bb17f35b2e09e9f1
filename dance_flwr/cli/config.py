"""`dance-flwr config`: the configuration keys."""

from typing import Annotated

import typer

app = typer.Typer()


@app.command(name="config")
def show(
    schema: Annotated[
        bool,
        typer.Option("--schema", help="as a JSON Schema of a TOML file, which editors understand"),
    ] = False,
) -> None:
    """Print every configuration key with its default, accepted values and meaning."""
    from dance_flwr.config.text import json_schema, markdown_tables

    typer.echo(json_schema() if schema else markdown_tables())
