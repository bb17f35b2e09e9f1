"""Rows of artificial studies."""

from dance_flwr_studies import get_experiment
from dance_flwr_studies.engine.cells import Request, Row
from dance_flwr_studies.engine.compact_rows import compact
from dance_flwr_studies.engine.folder import run_name, settings_of

from dance_flwr.config.tree import flatten

ASKED = ("fresh_prompt", "cached_prompt", "fresh_completion", "cached_completion")
SECONDS = {"forward": 0.1, "nodes": 0.0, "text": 0.2, "topology": 0.0, "packs": 0.0, "train": 0.7}


def result_of(config, accuracy, rounds=8):
    """Return a result.json as a run writes it."""
    condensed = {"nodes_per_round": 4.0, "neighbours": 2.0, "chunks": 6.0, "tokens": 90.0}
    return {
        "test_accuracy": accuracy,
        "val_accuracy": accuracy,
        "test_macro_f1": accuracy - 0.1,
        "nodes_per_client": [30, 20],
        "encoder_tokens": [600, 400],
        "per_condensed_node": condensed | {"supervised": 2.5}
        if config.method == "dance"
        else {"nodes_per_round": 0.0},
        "seconds_total": 60.0,
        "seconds_per_round": 6.0,
        "devices": ["cpu"],
        "model_fingerprint": "m",
        "provenance": "c",
        "versions": {"torch": "1"},
        "calibration": [1.0],
        "method": config.method,
        "clients": [],
        "tokens": ledgers(evidence=config.method == "dance"),
        "history": [
            {
                "round": t,
                "val_accuracy": round(accuracy * t / rounds, 6),
                "train_seconds": 10.0 if t <= 5 else 1.0,
                "seconds": SECONDS,
                "bytes_up": {"0": 1000, "1": 3000},
            }
            for t in range(1, rounds + 1)
        ],
        "config": flatten(config),
    }


def ledgers(evidence=False, **llm):
    """Tokens of a run: of the encoder, of evidence, and of a language model."""
    names = ("chunks", "tokens", "distinct_chunks", "distinct_tokens")
    return {
        "encoder": {"fresh": 1000, "cached": 0, "clients": []},
        "evidence": dict(zip(names, (30, 900, 10, 300), strict=True))
        if evidence
        else dict.fromkeys(names, 0),
        "llm": dict.fromkeys(ASKED, 0) | llm,
    }


def facts_of(config):
    core = [{"a": 1, "b": 2}, {"a": 3, "b": 0}] if config.method == "dance" else [None, None]
    train = [{"a": 10, "b": 8}, {"a": 6, "b": 6}]
    return {"core_per_class": core, "train_per_class": train, "cpu_seconds": 50.0}


def row_of(cell, accuracy):
    """Return a row as `load_rows` does; without an accuracy, it has no result."""
    result = (
        {}
        if accuracy is None
        else compact(result_of(cell.config, accuracy), facts_of(cell.config), cell.curve)
    )
    return Row("x", cell.labels, run_name(cell.config), settings_of(cell.config), result)


def cells_of(name, *, datasets=("cora",), methods=(), seeds=(0, 1, 2), **settings):
    experiment = get_experiment(name)
    return experiment.cells(Request(datasets, methods or experiment.methods, seeds, **settings))


def table_rows(section, first):
    """Return the cells of the table rows that begin with `first`."""
    text = "\n".join(part for part in section.parts if isinstance(part, str))
    return [
        [word.strip() for word in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith(f"| {first} |")
    ]
