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

    def __init__(self, sources, folder):
        paths = os.pathsep.join(map(str, (sources, PROJECT / "tests")))
        self.modules = {}
        self._errors = (folder / "stderr.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.traced_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths},
        )

    def __call__(self, message, context):
        request = {
            "message": message_to_proto(message).SerializeToString(),
            "context": (context.run_id, context.node_id, context.node_config, context.run_config),
            "leak": ("", ()),
        }
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        try:
            answer = pickle.load(self._process.stdout)
        except EOFError:
            self._errors.seek(0)
            raise AssertionError(self._errors.read()[-3000:]) from None
        self.modules = answer["modules"]
        return message_from_proto(ProtoMessage.FromString(answer["reply"]))

    def close(self):
        self._process.communicate(timeout=60)
        self._errors.close()
