"""`dance-flwr supernode`: Flower's SuperNode, which runs only the installed code."""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from dance_flwr.deploy import prefork
from dance_flwr.deploy.checks import Status, check_terms, parse_node_config, result_of
from dance_flwr.deploy.network import parse_address, tls_context
from dance_flwr.disk import private_folder
from dance_flwr.errors import UserError
from dance_flwr.federation import flower
from dance_flwr.federation.secagg.signatures import load_key

# Options of Flower's command that are set here: who computes, and where tasks are asked for.
SETTLED = (
    *("--isolation", "--host", "--port", "--superexec-auth-secret-file"),
    *("--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"),
    *("--allow-runtime-dependency-installation", "--disable-runtime-dependency-installation"),
)

# How long a node waits, with its SuperLink and with its own task, before it asks again.
_FASTEST_SECONDS, _TASK_SECONDS = 0.25, 0.1


def run_supernode(
    arguments: Sequence[str], accepted: Collection[str] = (), site: Path | None = None
) -> None:
    """Run Flower's SuperNode in this process, and a process that takes its tasks.

    Parameters
    ----------
    arguments : options of `flower-supernode`
    accepted : digests of bundles' differences from the installed code that the operator accepts
    site : folder whose approvals count, too; None = there is none

    Raises
    ------
    UserError : an option that this command sets itself, or invalid terms
    """
    if settled := [word for word in arguments if word.partition("=")[0] in SETTLED]:
        raise UserError(
            f"{settled[0]}: expected no option that `dance-flwr supernode` sets itself, found it; "
            "leave it out"
        )
    _check_options(arguments)
    prefork.close_memory()
    # Why (decision 29): of mode 0700, so the kernel keeps other users away from both ends. Every
    # user could connect to a port on loopback, and answer there while the node is down.
    folder = private_folder()
    of_site = {prefork.SITE: str(site)} if site else {}
    tasks = subprocess.Popen(
        [sys.executable, "-P", "-m", prefork.__name__, str(os.getpid()), str(folder), *accepted],
        # A process with threads must not fork. What the operator has set stays.
        env={"OPENBLAS_NUM_THREADS": "1"} | os.environ | of_site,
    )
    threading.Thread(target=_end_with, args=(tasks, folder), daemon=True).start()
    server = partial(flower.uvicorn.Config, uds=str(folder / prefork.SOCKET))
    prefork.log_rounds()
    flower.replace("uvicorn", SimpleNamespace(Server=flower.uvicorn.Server, Config=server))
    flower.replace("node_time", SimpleNamespace(sleep=pauses()))
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    try:
        flower.flower_supernode()
    except KeyboardInterrupt:  # before Flower heeds signals; a thread of its server would go on
        os._exit(130)  # the other process removes the folder
    finally:
        # As the other process does, where this one is killed.
        shutil.rmtree(folder, ignore_errors=True)


def pauses() -> Callable[[float], None]:
    """Return what Flower's loop calls for `time.sleep`: short pauses after a message, then longer.

    Flower waits three seconds wherever no message has come, which is most of a masked round, and
    half a second while a task is at work. Here it waits a tenth of the time since the last task,
    three seconds at most (decision 10).
    """
    worked = float("-inf")

    def sleep(seconds: float) -> None:
        nonlocal worked
        if seconds < 1:  # a task is at work
            worked = time.monotonic()
            time.sleep(_TASK_SECONDS)
        else:
            idle = (time.monotonic() - worked) / 10
            time.sleep(min(seconds, max(_FASTEST_SECONDS, idle)))

    return sleep


def _check_options(arguments: Sequence[str]) -> None:
    """Refuse terms that no run could meet, and an invalid address or file; print missing terms."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--node-config", default="")
    parser.add_argument("--superlink", type=parse_address)
    parser.add_argument("--root-certificates", type=lambda path: tls_context(Path(path)))
    parser.add_argument("--auth-supernode-private-key", type=lambda path: load_key(Path(path)))
    text = parser.parse_known_args(arguments)[0].node_config
    terms = result_of(lambda: check_terms(parse_node_config(text)))
    if terms.status is Status.PROBLEM:
        raise UserError(terms.text)
    if terms.status is not Status.OK:
        print(f"{terms.status}: {terms.text}", file=sys.stderr)


def _end_with(tasks: subprocess.Popen[bytes], folder: Path) -> None:
    code = tasks.wait()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"the process of ClientApps ended with {code}, so the SuperNode ends", file=sys.stderr)
    os._exit(1)
