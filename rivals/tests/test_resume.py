"""Server sides of rivals keep what they need between rounds."""

import pytest
from support.killing import same
from support.resuming import breaking, check_kept_arrays
from support.resuming import stop_and_go as stop_and_go

from dance_flwr.runs import checkpoint

FAST = {"rounds": 3, "local_epochs": 1, "clients": 2, "ema_decay": 0.5}
RIVALS = ("fedtad", "fedsage", "fedgta")


@pytest.mark.parametrize("method", RIVALS)
def test_whatever_a_run_keeps_between_rounds_is_kept(run, stop_and_go, monkeypatch, method):
    keys = {**FAST, "method": method} | ({"fedgta_epsilon": 0.0} if method == "fedgta" else {})
    whole = run(**keys)
    # The first call is of the start.
    breaking(monkeypatch, checkpoint.Checkpoint, "save", lambda call: call == keys["rounds"])
    same(whole, stop_and_go(**keys))


@pytest.mark.parametrize("method", RIVALS)
def test_a_checkpoint_leaves_out_nothing_that_a_rival_keeps(run, monkeypatch, method):
    check_kept_arrays(run, monkeypatch, method=method)
