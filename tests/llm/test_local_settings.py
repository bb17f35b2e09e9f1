"""The client's own settings: a file, the environment, and what is refused."""

import pytest

from dance_flwr.deploy.superlink import flower_environment
from dance_flwr.errors import UserError
from dance_flwr.llm.local_settings import LocalSettings, api_key, is_loopback, local_settings


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("DANCE_FLWR_LLM", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function that makes a text the client's own file, and returns its path."""

    def write(text, name="own.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("DANCE_FLWR_LLM", str(path))
        return path

    return write


def test_every_key_of_the_file(written):
    path = written(
        """[llm]
model-file = "model.gguf"
base-url = "https://gpu.example.org/v1"
model = "qwen2.5:7b"
allow-remote = true
timeout = 5
max-calls = 0
max-tokens = 100
"""
    )
    assert local_settings() == LocalSettings(
        model_file=str(path.parent / "model.gguf"),
        base_url="https://gpu.example.org/v1",
        model="qwen2.5:7b",
        allow_remote=True,
        timeout=5.0,
        max_calls=0,
        max_tokens=100,
    )


def test_a_file_as_windows_editors_store_it_is_read(written):
    written('\ufeff[llm]\nmodel = "m"\n')
    assert local_settings() == LocalSettings(model="m")


def test_the_key_comes_from_the_environment_only(written, monkeypatch):
    assert api_key() == "none"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert api_key() == "sk-1"
    written('[llm]\napi-key = "sk-geheim"\n')
    with pytest.raises(UserError, match=r"'api-key'.*OPENAI_API_KEY") as refused:
        local_settings()
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://192.168.0.7:8000/v1",
        "https://api.example.com/v1",
        "http://127.0.0.1.example.com/v1",
        "http://0.0.0.0:8000/v1",
        "http://2130706433/v1",
    ],
)
def test_another_host_needs_the_clients_own_word(written, address):
    written(f'[llm]\nbase-url = "{address}"\n')
    with pytest.raises(UserError, match="allow-remote = true") as refused:
        local_settings()
    assert address.split("/")[2] not in str(refused.value), "an error travels to the server"
    written(f'[llm]\nbase-url = "{address}"\nallow-remote = true\n')
    assert local_settings().base_url == address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST"])
def test_what_this_machine_is_called(host):
    assert is_loopback(host)


def test_the_processes_of_a_run_inherit_them(monkeypatch, tmp_path):
    own = {"DANCE_FLWR_LLM": "f", "OPENAI_API_KEY": "k"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert own.items() <= flower_environment(tmp_path).items()
