"""What `dance-flwr run` prints of a result, and the options that `prepare` shares with it."""

import pytest
from rich.console import Console
from support.graphs import SMALL

from dance_flwr.cli.run import accuracy_table
from dance_flwr.data.prepare import prepare


def row(client, val, test, **counts):
    return {"client": client, "val_accuracy": val, "test_accuracy": test, **counts}


@pytest.fixture
def printed(capsys):
    """A function that prints a result's table and returns its cells by the first of a line."""

    def show(clients, val, test, **counts):
        result = {"clients": clients, "val_accuracy": val, "test_accuracy": test, **counts}
        result["nodes_per_client"] = [9] * len(clients)
        Console(width=100).print(accuracy_table(result))
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        return {cells[0]: cells[1:] for cells in lines if cells}

    return show


def test_a_score_over_no_nodes_is_not_measured(printed):
    table = printed(
        [
            row(0, 0.5, None, test_nodes=0, val_nodes=2),
            row(1, None, 0.25, test_nodes=4, val_nodes=0),
            row(2, 0.0, 0.0, test_nodes=4, val_nodes=4),
        ],
        *(0.25, 0.125),
        **{"test_nodes": 8, "val_nodes": 6},
    )
    assert table["0"] == ["9", "0", "0.5000", "not", "measured"]
    assert table["1"] == ["9", "4", "not", "measured", "0.2500"]
    assert table["2"] == ["9", "4", "0.0000", "0.0000"], "0 of 4 nodes is a score"
    assert table["overall"] == ["27", "8", "0.2500", "0.1250"]


def test_a_result_without_nodes_is_not_measured_overall(printed):
    table = printed(
        [row(0, None, None, test_nodes=0, val_nodes=0)], None, None, test_nodes=0, val_nodes=0
    )
    assert table["overall"] == ["9", "0", "not", "measured", "not", "measured"]


def test_prepare_makes_what_a_run_with_the_same_options_finds(cli, tiny, run_config):
    keys = ("encoder", "encoder-precision", "chunk-tokens", "max-chunks")
    texts = [f"--set={key}={SMALL[key]}" for key in keys]
    done = cli("prepare", "--data", tiny, "--clients", 2, "--seed", 77, *texts)
    assert done.code == 0 and "(made: 2 clients" in done.out
    said = []
    folder = prepare(run_config(clients=2, seed=77), said.append).folder
    assert str(folder) in done.out and not any("made" in line for line in said)
