"""What users pass: nodes by id, place and mask, configurations in every form, and refusals."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.project import PROJECT

from dance_flwr.api.inputs import config_of, rows_of

IDS = ["a", "b", "c"]


@pytest.mark.parametrize(
    "nodes",
    [
        *(["c", "a"], np.array(["c", "a"]), [2, 0], np.array([2, 0]), torch.tensor([2, 0])),
        *((2, 0), iter([2, 0]), [np.int64(2), torch.tensor(0)]),
    ],
)
def test_nodes_by_id_and_by_place_in_the_order_asked_for(nodes):
    assert rows_of(nodes, IDS).tolist() == [2, 0]


def test_nodes_by_mask_and_one_node_alone():
    mask = [True, False, True]
    for form in (mask, np.array(mask), torch.tensor(mask)):
        assert rows_of(form, IDS).tolist() == [0, 2]
    assert rows_of("b", IDS).tolist() == rows_of(1, IDS).tolist() == [1]


def test_a_configuration_in_every_form(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text("rounds = 7\n[dance]\nmix = 0.4\n", encoding="utf-8")
    flat, nested = {"rounds": 7, "dance.mix": 0.4}, {"rounds": 7, "dance": {"mix": 0.4}}
    wanted = config_of(flat)
    assert wanted.rounds == 7
    for form in (nested, file, str(file), wanted):
        assert config_of(form) == wanted
    assert config_of(None) == config_of({})


def test_ipython_shows_no_traceback_of_a_mistake(tmp_path):
    code = "from dance_flwr.errors import ConfigError; raise ConfigError(['rounds: bad'])"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=os.environ | {"IPYTHONDIR": str(tmp_path)},
    )
    shown = (done.stdout + done.stderr).strip().splitlines()
    assert shown[-1] == "ConfigError: rounds: bad" and "Traceback" not in "".join(shown)
