"""The process that `support.tracing` starts: it answers messages from standard input."""

import os
import pickle
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from flwr.app import Context, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from tqdm import tqdm

import client_app
from dance_flwr.deploy import prefork
from dance_flwr.federation.flower import TaskIdentity
from support import planted
from support.tracing import BEGIN, END, READY


def main():
    """Answer until standard input ends; the accesses of each answer stand between two marks.

    As on a SuperNode, libraries are loaded before: torch's compiler, which comes with the first
    optimiser, asks who the user is and makes a folder for what it would compile. So is the text
    encoder's, which some methods use, with the lock of the progress bar that it does not show, and
    urllib3, which comes with a layer of torch-geometric and binds a socket to try IPv6.
    """
    for library in (*prefork.LIBRARIES, "sentence_transformers", "urllib3.util.connection"):
        import_module(library)
    tqdm.get_lock()
    mark(READY)
    contexts, answers = {}, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        run, node, node_config, run_config = request["context"]
        context = contexts.setdefault(
            (run, node), Context(run, node, node_config, RecordDict(), run_config)
        )
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, 0, run
        message = message_from_proto(ProtoMessage.FromString(request["message"]))
        leak, arguments = request["leak"]
        pickle.dump(answer_of(message, context, leak, arguments), answers)
        answers.flush()


def answer_of(message, context, leak, arguments):
    """The reply, or the error; with `leak` the client does that while it trains."""
    with planted.in_training(leak, arguments):
        mark(BEGIN)
        try:
            reply = client_app.app(message, context)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        finally:
            mark(END)
    files = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "dance_flwr" and module.__file__
    }
    return {"reply": message_to_proto(reply).SerializeToString(), "modules": files}


def mark(path):
    """Leave a line in the log of strace."""
    with suppress(OSError):
        Path(path).stat()


if __name__ == "__main__":
    main()
