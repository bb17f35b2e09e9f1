"""What the process of a client may open: its own folder, and what Python, torch and C need."""

import os
import re
import site
import sys
import sysconfig
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dance_flwr.config.paths import data_root
from dance_flwr.config.plugins import METHODS
from dance_flwr.config.tree import RunConfig
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.messages import config_of
from support.graphs import SMALL
from support.project import PROJECT

# Kinds of access. To look is to ask whether something exists, or how large it is.
READ, WRITE, LIST, LOOK = "read", "write", "list", "look"
START, NETWORK = "start a process", "network"

# The server's app is read for the fingerprint of the code.
OUR_CODE = [PROJECT / name for name in ("dance_flwr", "client_app.py", "server_app.py")]
OUR_CODE.append(PROJECT / "tests" / "support")
# Packages that bring methods: a client reads the keys of all of them.
OUR_CODE += [
    Path(folder).resolve()
    for name in {point.module.partition(".")[0] for point in entry_points(group=METHODS.group)}
    for folder in find_spec(name).submodule_search_locations or ()
]
# Where Python looks for modules; what lies elsewhere in the checkout is no code of a client.
SEARCHED = [Path(entry or ".").resolve() for entry in sys.path]
INTERPRETER = [
    Path(folder).resolve()
    for folder in (
        # Where it finds packages, and itself.
        *(*site.getsitepackages(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")),
        *(f"{prefix}/lib/python{sys.version_info.major}" for prefix in (sys.prefix, "/usr")),
        *(f"{sys.prefix}/pyvenv.cfg", *(entry for entry in sys.path if entry.endswith(".zip"))),
    )
]
LIBRARIES = [
    Path(name)
    for name in (
        # The C library: shared libraries and the cache of where they are, locales, time zones.
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
        *("/usr/share/locale", "/usr/share/zoneinfo", "/etc/localtime"),
        # OpenSSL, whose hashes name the versions of models and texts: its own settings.
        *("/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"),
    )
]
MACHINE = [
    Path(name)
    for name in (
        # What numerical libraries ask about processors and memory, and sources of random numbers.
        *("/sys/devices/system/cpu", "/sys/devices/system/node", "/proc/cpuinfo", "/proc/meminfo"),
        *("/sys/fs/cgroup", "/sys/kernel/mm", "/proc/stat", "/proc/sys/vm/overcommit_memory"),
        "/proc/sys/kernel/random/boot_id",
        *("/proc/self/maps", "/proc/self/status", "/proc/self/cgroup", "/proc/self/mountinfo"),
        *("/proc/self/stat", "/proc/self/statm"),  # how much memory its process has
        "/proc/self/mounts",  # transformers: whether the encoder's files are on a remote disk
        *("/dev/null", "/dev/urandom", "/dev/random"),
    )
]
ENCODER = Path(SMALL.get("encoder", os.devnull))  # a child process has none
READABLE = [*OUR_CODE, *INTERPRETER, *LIBRARIES, *MACHINE, ENCODER]
WRITABLE = [Path("/dev/null")]
# Importing the text encoder imports joblib, which makes a semaphore to see whether it can.
SEMAPHORE = re.compile(r"/dev/shm/sem\.(\w{6}|(joblib|loky)-\d+-\w+)")
_SELF = "/proc/self/"


class Access(NamedTuple):
    """One access of a process: its kind, and a path, an address or a command."""

    kind: str
    target: str


class Allowed:
    """What the receiver of a message may access.

    Its folder is `own`, None where the message names none. Below the data root, where the folders
    of the other clients are too, it may not even look; elsewhere looking is free, since a path is
    resolved by looking at its parents. Of /proc it may read what is of its own `process`.
    """

    def __init__(self, message, process):
        folder = config_of(message).get(keys.PARTITION_DIR) if message.has_content() else None
        client = f"client-{message.metadata.dst_node_id - 1}"
        self.own = Path(folder, client).resolve() if folder else None
        self.root, self.process = data_root(RunConfig()), f"/proc/{process}/"

    def covers(self, access):
        """Whether the client may do this; call it at once, as links may change."""
        if access.kind in (START, NETWORK):
            return False
        target = os.path.normpath(access.target)
        if not target.startswith(_SELF):  # which leads elsewhere here than there
            target = os.path.realpath(target)
        if target.startswith(self.process):
            target = target.replace(self.process, _SELF, 1)
        path = Path(target)
        if self.own and path.is_relative_to(self.own):
            return True
        if access.kind == LOOK:
            above = self.own and self.own.is_relative_to(path)
            return above or not path.is_relative_to(self.root)
        if access.kind == WRITE:
            return path in WRITABLE or bool(SEMAPHORE.fullmatch(access.target))
        if access.kind == LIST and path in SEARCHED:
            return True
        return any(path.is_relative_to(place) for place in READABLE)
