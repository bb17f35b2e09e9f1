"""A ClientApp in a process of its own."""

import os
import pickle
import subprocess
import sys

from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage

from support.project import PROJECT


class Node:
    """A ClientApp in a process of its own, from the sources in a folder.

    `modules` are the files of the package that the process has imported, after the last reply.
    """

    def __init__(self, sources, folder, launcher=()):
        paths = os.pathsep.join(map(str, (sources, PROJECT / "tests")))
        self.modules, self._errors = {}, folder / "stderr.txt"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*launcher, sys.executable, "-B", "-m", "support.traced_client"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": paths},
            )

    def __call__(self, message, context, leak="", arguments=()):
        """Let the process answer a message; `leak` is what it does on the side when it trains."""
        request = {
            "message": message_to_proto(message).SerializeToString(),
            "context": (context.run_id, context.node_id, context.node_config, context.run_config),
            "leak": (leak, tuple(map(str, arguments))),
        }
        pickle.dump(request, self.process.stdin)
        self.process.stdin.flush()
        try:
            answer = pickle.load(self.process.stdout)
        except EOFError:
            raise AssertionError(self._errors.read_text()[-3000:]) from None
        self.answered(message)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        self.modules = answer["modules"]
        return message_from_proto(ProtoMessage.FromString(answer["reply"]))

    def answered(self, message):
        """What a subclass does after each answer."""

    def close(self):
        self.process.communicate(timeout=600)
