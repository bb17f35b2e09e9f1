"""What strikes a deployment: a cable that can be cut, and a node whose replies can be spoilt."""

import asyncio
import socket
import struct
import threading
from pathlib import Path
from textwrap import dedent

from dance_flwr.simulation.superlink import free_port

HOST = "127.0.0.1"


class Cable:
    """A TCP relay on loopback that can be cut: bytes stop both ways, connections stay open, as
    without a wire.

    Parameters
    ----------
    port : on 127.0.0.1, where the relay connects to
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
        """Let no byte pass."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Let bytes pass again, those that waited first."""
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
        except OSError:  # nobody there: refused, as a cable would let the far end do
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


# Python imports `sitecustomize` at its start wherever it finds one on PYTHONPATH. The word is read
# for each message, so that a node goes astray and comes back without a restart. "again" is in the
# SuperNode: it signs and sends anew, one message later, what it has sent before.
_SPOIL = """
import os, sys
from pathlib import Path

program = " ".join(sys.orig_argv)


def word():
    file = Path(os.environ["SPOIL"])
    return file.read_text() if file.is_file() else ""


if "flwr-clientapp" in program or "warm.py serve" in program:
    import numpy as np
    from flwr.app import Array, ArrayRecord
    from flwr.supernode.runtime import run_clientapp

    push = run_clientapp.push_message

    def spoilt(array):
        values = array.numpy()
        return Array(np.full_like(values, np.nan) if word() == "nan" else values.ravel()[:-1].copy())

    def push_spoilt(client, message, context):
        if word() in ("nan", "shapes") and message.metadata.message_type == "train":
            packing = sys.modules["dance_flwr.federation.wire.serialization"]  # the run's own, loaded with its app
            message = packing.unpacked(message)
            for name, record in list(message.content.array_records.items()):
                message.content[name] = ArrayRecord({key: spoilt(array) for key, array in record.items()})
            message = packing.packed([message])[0]
        push(client, message, context)

    run_clientapp.push_message = push_spoilt

if "flower-supernode" in program:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    push_once, sent = FleetHttpClient.PushMessages, []

    def push_again(self, request):
        answer = push_once(self, request)
        if word() == "again":
            for old in [*sent[-1:], request]:
                try:
                    found = push_once(self, old)
                    print("REPLAY answered:", len(found.objects_to_push), "objects wanted", flush=True)
                except Exception as error:
                    print("REPLAY refused:", error, flush=True)
        sent.append(request)
        return answer

    FleetHttpClient.PushMessages = push_again
"""


class Spoiler:
    """Makes one SuperNode, started with `environment`, send what it should not, as long as a word
    is set.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(dedent(_SPOIL), encoding="utf-8")
        self._file = folder / "word"
        self.environment = {"PYTHONPATH": str(folder), "SPOIL": str(self._file)}

    def set(self, word: str) -> None:
        """Send NaN ("nan"), one number too few ("shapes"), old messages again ("again"), or nothing
        wrong ("").
        """
        self._file.write_text(word, encoding="utf-8")
