"""`dance-flwr config`: the configuration keys."""

import typer

app = typer.Typer()


@app.command(name="config")
def show() -> None:
    """Print every configuration key with its default, accepted values and meaning."""
    from dance_flwr.config.text import markdown_table

    typer.echo(markdown_table())
