"""The process of a private SuperLink: Flower's own, which asks for credentials.

    python -m dance_flwr.runs.simulation.superlink_process PORT

Flower 1.42 has no account for an operator's command without its enterprise plug-in, and needs TLS
for that of a node. A request is answered here if the kernel says that a process of the same user
sent it (Linux), and besides: for the operator's commands with the token that is in this FLWR_HOME,
which only its user can read; for SuperExec with Flower's shared secret, for a task with Flower's
token. No node can join a simulation: its API is closed.
"""

import hmac
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from dance_flwr.disk import write_new
from dance_flwr.federation import flower
from dance_flwr.runs.simulation.superlink import HOST

_TABLE = Path("/proc/net/tcp")
_LOCAL, _PEER, _STATE, _UID = 1, 2, 3, 7  # columns of the kernel's table
_ESTABLISHED = "01"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware that answers 403 to requests without `token`, or of another `user`."""

    def __init__(self, app: App, token: str, user: int | None) -> None:
        self._app, self._expected, self._user = app, f"Bearer {token}".encode(), user

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self._admits(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": b"this SuperLink is private"})

    def _admits(self, scope: Mapping[str, Any]) -> bool:
        # Why (decision 2): Flower passes tokens of tasks on command lines that others can read, so
        # the kernel is asked whose process calls.
        if self._user not in (None, sender(scope["client"], scope["server"])):
            return False
        path = str(scope["path"])
        if path.startswith("/v1/control/"):
            credential = dict(scope["headers"]).get(b"authorization", b"")
            # In constant time: how long a refusal takes says nothing of the token.
            return hmac.compare_digest(credential, self._expected)
        # Why (decision 2): no node joins a simulation. What is left asks for Flower's own tokens.
        return not path.startswith("/v1/fleet/")


def sender(client: tuple[str, int], server: tuple[str, int]) -> int:
    """Return the user of the process at the other end of a connection, -1 for an unknown one.

    Of a connection that this process has closed, the kernel lists root as the user, whoever it was.
    """
    ends = [_in_table(*client), _in_table(*server)]
    for line in _TABLE.read_text().splitlines()[1:]:
        row = line.split()
        if [row[_LOCAL], row[_PEER]] == ends and row[_STATE] == _ESTABLISHED:
            return int(row[_UID])
    return -1


def _this_user() -> int | None:
    """Return the user id of this process, None where the kernel does not tell that of a sender."""
    with (
        socket.create_server((HOST, 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        suppress(OSError),
    ):
        if sender(client.getsockname(), server.getsockname()) == os.getuid():
            return os.getuid()
    return None


def _in_table(host: str, port: int) -> str:
    """Return an address as the kernel writes it: the bytes of a word of this machine."""
    number = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    return f"{number:08X}:{port:04X}"


def main() -> None:
    """Serve at the port that the command line names, until a signal ends it."""
    port = sys.argv[1]
    address, home = f"{HOST}:{port}", Path(os.environ["FLWR_HOME"])
    # Drawn anew for every SuperLink: no credential outlives its run.
    token, secret = secrets.token_hex(32), home / "superexec.secret"
    # Readable by this user alone, before its first byte.
    write_new({secret: (secrets.token_bytes(32), 0o600)})
    _remember(address, token)
    shared = ["--insecure", "--superexec-auth-secret-file", str(secret)]
    # Flower's SuperLink starts this itself, but then without a secret.
    executor = ["flower-superexec", *shared, "--runtime-api-address", address]
    subprocess.Popen([*executor, "--parent-pid", str(os.getpid())])
    where = ["--simulation", "--isolation", "process", "--host", HOST, "--port", port]
    sys.argv = ["flower-superlink", *shared, *where]
    _guard(token)
    flower.flower_superlink()


def _remember(address: str, token: str) -> None:
    """Write the token where `flwr` finds that of an account, in FLWR_HOME."""
    store = flower.get_credential_store()
    kinds = {flower.AUTHN_TYPE_STORE_KEY: flower.AuthnType.OIDC}
    kinds |= dict.fromkeys((flower.ACCESS_TOKEN_STORE_KEY, flower.REFRESH_TOKEN_STORE_KEY), token)
    for key, value in kinds.items():
        store.set(key % address, value.encode())


def _guard(token: str) -> None:
    """Put the guard in front of the app that Flower is about to create."""
    module, user = import_module(flower.SUPERLINK), _this_user()
    # Flower has no hook for a middleware, so its factory is wrapped before it is called.
    create = module.create_app

    def guarded(*arguments: Any) -> Any:
        app = create(*arguments)
        app.add_middleware(Guard, token=token, user=user)
        return app

    module.create_app = guarded  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
