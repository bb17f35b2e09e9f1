"""A process that has loaded the libraries and runs each command in a copy of itself.

Most of a command's seconds are the import of torch. What is tested, dance_flwr, is imported by each
copy anew, from where the process would find it.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

LIBRARIES = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "scipy.stats", "sklearn", "torch")
LIBRARIES += ("sentence_transformers",)


class Forking:
    """A process of a Python, in a folder."""

    def __init__(self, python, folder, environment):
        self.folder = folder
        self.process = subprocess.Popen(
            [python, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment,
            text=True,
        )

    def __call__(self, *words):
        """Run `dance-flwr WORDS`; return its exit code and what it printed."""
        paths = [self.folder / f".{name}" for name in ("stdout", "stderr")]
        print(json.dumps([words, *map(str, paths)]), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        out, err = (path.read_text("utf-8") for path in paths)
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    def close(self):
        self.process.communicate(timeout=60)


def serve():
    """Answer each line of standard input, [words, file of stdout, file of stderr], by a code."""
    for library in LIBRARIES:
        import_module(library)
    for line in sys.stdin:
        words, *files = json.loads(line)
        child = os.fork()
        if not child:
            run(words, *files)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(words, *files):
    """Be `dance-flwr WORDS`, and end with its exit code, traceback or both."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = ["dance-flwr", *words]
    from dance_flwr.cli.main import main

    main()
    sys.exit()


if __name__ == "__main__":
    serve()
