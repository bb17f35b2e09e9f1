"""Nine commands from nothing to predictions at a site: processes, TLS, node keys, masks."""

import csv
import json
import os
import stat
import sys

import pytest
from support.graphs import SMALL
from support.project import PROJECT

from dance_flwr.data.imports.loading import load_graph

sys.path.insert(0, str(PROJECT / "benchmarks"))
from sites import SITES, Machines, found

KEYS = ("hidden-dim", "encoder", "encoder-precision", "device", "chunk-tokens")
OF_RUNS = [f"{key}={SMALL[key]}" for key in KEYS] + [
    "rounds=1",
    "max-chunks=4",
    "node-timeout=60.0",
]


def modes(folder):
    """Mode -> files and folders below a folder that have it."""
    result = {}
    for path in folder.rglob("*"):
        if not path.is_symlink():
            result.setdefault((path.is_dir(), stat.S_IMODE(path.stat().st_mode)), []).append(path)
    return result


@pytest.mark.flower
@pytest.mark.xdist_group("deployment")
def test_nine_commands_from_nothing_to_predictions_at_a_site(tiny, tmp_path):
    lines = []
    machines = Machines(tmp_path, lines.append)
    try:
        found(machines, load_graph(str(tiny)), [*OF_RUNS, "dance.candidates=4"])
        machines.call("server", "deploy", "run", "--name", "first")
        site = tmp_path / "north" / "north"
        machines.call("north", "site", "results")
    finally:
        print("\n".join(lines))
        machines.close()
    result = json.loads((tmp_path / "server/hospitals/runs/first/result.json").read_text())
    assert result["privacy"]["secure_aggregation"] and "survivors" in {
        row["stage"] for row in result["messages"]
    }
    (folder,) = (site / "results").iterdir()
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and {row["predicted"] for row in rows} <= set(result["class_names"])
    assert "<html" in (folder / "audit.html").read_text()[:500]
    facts = json.loads((folder / "bundle" / "bundle.json").read_text())
    assert facts["model_fingerprint"] == result["model_fingerprint"]
    for place in (*SITES, "server/hospitals"):
        home = tmp_path / place / place if place in SITES else tmp_path / place
        exposed = {mode: paths for mode, paths in modes(home).items() if mode[1] & 0o077}
        assert not exposed, exposed
    assert os.path.lexists(site / "accepted-code")
