"""Fault injection: a network link that can be cut, and a node that sends corrupted replies."""

import asyncio
import socket
import struct
import threading
from pathlib import Path
from textwrap import dedent

from dance_flwr.runs.processes import free_port

HOST = "127.0.0.1"


class Cable:
    """A TCP relay on loopback that can be cut, as a cable: connections stay open, bytes stop.

    Parameters
    ----------
    port : of the server on 127.0.0.1
    """

    def __init__(self, port: int) -> None:
        self._target, self.address = port, f"{HOST}:{free_port()}"
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(ready,), daemon=True).start()
        ready.wait()

    def cut(self) -> None:
        """Stop all bytes, in both directions."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def repair(self) -> None:
        """Let bytes pass again, in order."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        _, port = self.address.split(":")
        self._loop.run_until_complete(asyncio.start_server(self._connect, HOST, int(port)))
        ready.set()
        self._loop.run_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:  # no server: refuse, as the far end of a cable would
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            writer.transport.abort()
            return
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


# Python imports `sitecustomize` from PYTHONPATH at startup. The mode is read for each message, so
# that a node misbehaves and recovers without a restart. "replay" acts in the SuperNode: it signs
# and sends the previous message again.
_CORRUPTION = """
import os, sys
from pathlib import Path

program = " ".join(sys.orig_argv)


def mode():
    file = Path(os.environ["CORRUPTION"])
    return file.read_text() if file.is_file() else ""


if "dance_flwr.deploy.prefork" in program:
    import numpy as np
    from flwr.app import Array, ArrayRecord
    from flwr.supernode.runtime import run_clientapp

    push = run_clientapp.push_message

    def corrupt(array):
        values = array.numpy()
        if mode() == "nan":
            return Array(np.full_like(values, np.nan))
        return Array(values.ravel()[:-1].copy())

    def push_corrupted(client, message, context):
        if mode() in ("nan", "shapes") and message.metadata.message_type == "train":
            from dance_flwr.federation.wire import serialization

            message = serialization.unpack(message)
            for name, record in list(message.content.array_records.items()):
                corrupted = {key: corrupt(array) for key, array in record.items()}
                message.content[name] = ArrayRecord(corrupted)
            message = serialization.pack([message])[0]
        push(client, message, context)

    run_clientapp.push_message = push_corrupted

if "dance-flwr supernode" in program:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    push_once, sent = FleetHttpClient.PushMessages, []

    def push_again(self, request):
        answer = push_once(self, request)
        if mode() == "replay":
            for old in [*sent[-1:], request]:
                try:
                    objects = push_once(self, old).objects_to_push
                    print("REPLAY answered:", len(objects), "objects wanted", flush=True)
                except Exception as error:
                    print("REPLAY refused:", error, flush=True)
        sent.append(request)
        return answer

    FleetHttpClient.PushMessages = push_again
"""


class Corruption:
    """Makes one SuperNode, started with `environment`, misbehave while a mode is set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(dedent(_CORRUPTION), encoding="utf-8")
        self._file = folder / "mode"
        self.environment = {"PYTHONPATH": str(folder), "CORRUPTION": str(self._file)}

    def set(self, mode: str) -> None:
        """Send NaN ("nan"), too few numbers ("shapes"), messages twice ("replay"); "" = behave."""
        self._file.write_text(mode, encoding="utf-8")
