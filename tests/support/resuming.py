"""Runs that are stopped at some instant and resumed."""

import pytest
from flwr.app import ArrayRecord

from dance_flwr.federation.server import round as round_module
from support.killing import Killed


def breaking(monkeypatch, where, name, when):
    """Make a function raise `Killed` if `when(call number)`."""
    real, calls = getattr(where, name), []

    def broken(*arguments, **options):
        calls.append(arguments)
        if when(len(calls)):
            raise Killed
        return real(*arguments, **options)

    monkeypatch.setattr(where, name, broken)


@pytest.fixture
def stop_and_go(run, tmp_path, monkeypatch):
    """A function that starts a run, lets `kill` end it, resumes it, and returns the result."""

    def start(kill=None, **keys):
        folder = tmp_path / "run"
        with pytest.raises(Killed):
            run(folder=folder, on_message=kill, **keys)
        monkeypatch.undo()
        assert not (folder / "result.json").exists() and list(
            folder.glob("checkpoint*.safetensors")
        )
        finished = run(folder=folder, resume=True, **keys)
        names = {path.name for path in folder.iterdir()}
        assert names == {"result.json", "history.jsonl", "model.safetensors"}
        return finished

    return start


def check_kept_arrays(run, monkeypatch, **keys):
    """Assert that all arrays that the parts of a `Round` hold are known to the checkpoint."""
    arrays = {"round": set(), "step": set(), "side": set()}
    real = round_module.Round.state

    def spy(round_, *rest):
        for part, owner in (("round", round_), ("step", round_.step), ("side", round_.side)):
            arrays[part] |= {
                name
                for name, value in vars(owner).items()
                if isinstance(value, dict | list | ArrayRecord)
            }
        return real(round_, *rest)

    monkeypatch.setattr(round_module.Round, "state", spy)
    run(rounds=2, **keys)
    assert arrays["round"] == {"deployed", "_start"}  # `_start` is set when a round begins
    # Flower sets `current_arrays` from the global model when a round begins.
    assert arrays["step"] - {"current_arrays"} <= set(round_module._STEP_STATE)
    assert arrays["side"] == {"memory"}
