"""A SuperNode between a server that sends other code and another user of its machine.

Processes with TLS, node authentication, signatures and masks, each node in a network of its own.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.processes import free_port, wait_until

from dance_flwr.config.text import toml_value
from dance_flwr.data.prepare import prepare
from dance_flwr.deploy import superlink
from dance_flwr.deploy.bundle import submitted_app
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.superlink import SuperLink, flower_environment
from dance_flwr.errors import UserError
from dance_flwr.federation.wire import keys as wire
from dance_flwr.runs.processes import tool
from dance_flwr.runs.result import load_model
from dance_flwr.runs.simulation import in_process

NOBODY = 65534
ACQUIRES = b"\n\x0eflwr-clientapp"  # AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
# Knocks at each door, a port or the path of a Unix socket; prints those that open.
KNOCKS = f"""
import os, socket, sys, urllib.error, urllib.request
os.setuid(int(sys.argv[1]))
for door in sys.argv[2:]:
    if not door.isdigit():
        try:
            socket.socket(socket.AF_UNIX).connect(door)
        except OSError:
            continue
        print(door, "connected")
        continue
    for call in ("acquire-task", "pull-task-input", "push-task-output", "push-messages"):
        url = f"http://127.0.0.1:{{door}}/v1/runtime/{{call}}"
        kind = {{"Content-Type": "application/protobuf"}}
        request = urllib.request.Request(url, {ACQUIRES!r}, kind)
        try:
            print(door, call, urllib.request.urlopen(request, timeout=10).read())
        except (urllib.error.URLError, OSError):
            pass
"""
# What the honest run asks for, and no more.
TERMS = {"methods": "dance", "max-rounds": 2, "max-trainings": 2, "max-local-epochs": 2}
CLIENTS = 3
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def doors(process):
    """The ports and the paths of Unix sockets at which processes of a tree listen.

    Read from the table of each process, which may have a network of its own.
    """
    found = set()
    for member in process.members():
        home = Path(f"/proc/{member.pid}")
        with suppress(OSError):
            ends = {str(end.readlink()) for end in (home / "fd").iterdir()}
            for name in ("tcp", "tcp6"):
                for row in map(str.split, (home / "net" / name).read_text().splitlines()[1:]):
                    if row[3] == "0A" and f"socket:[{row[9]}]" in ends:
                        found.add(str(int(row[1].rpartition(":")[2], 16)))
            for row in map(str.split, (home / "net" / "unix").read_text().splitlines()[1:]):
                if len(row) == 8 and f"socket:[{row[6]}]" in ends:
                    found.add(row[7])
    return found


def knock(doors, user, launcher=()):
    """What a process of that user gets at these doors, in the network of the launcher."""
    # A program of the system: another user may not be allowed to read this environment.
    done = subprocess.run(
        [*launcher, "/usr/bin/env", "python3", "-I", "-c", KNOCKS, str(user), *sorted(doors)],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_root
def test_another_user_finds_no_door_of_a_supernode(tmp_path):
    command = ["dance-flwr", "supernode", "--insecure", "--superlink", f"127.0.0.1:{free_port()}"]
    environment = flower_environment(tmp_path)
    process = ProcessTree(command, environment, tmp_path, tmp_path / "log")
    try:
        wait_until(lambda: "Uvicorn running" in (tmp_path / "log").read_text())
        found = doors(process)
        assert knock(found, os.getuid())  # its own user does
        assert knock(found, NOBODY) == []
        lines = [" ".join(member.cmdline()) for member in process.members()]
        assert not any("--token" in line for line in lines)
    finally:
        stop(process)


@contextmanager
def thief(node, launcher):
    """What another user of a node's machine gets at its doors during the block."""
    stolen, ended = [], threading.Event()

    def steal():
        while not ended.is_set():
            stolen.extend(knock(doors(node), NOBODY, launcher))
            time.sleep(2)

    knocking = threading.Thread(target=steal)
    if os.geteuid() == 0:
        knocking.start()
    try:
        yield stolen
    finally:
        ended.set()
        if knocking.is_alive():
            knocking.join()


LOOPBACK = "127.0.0.1"
IP = shutil.which("ip") or "ip"  # of the system, not of this environment


@dataclass
class Network:
    """The SuperLink's address, and command prefixes and addresses of the nodes' namespaces."""

    host: str = LOOPBACK
    launchers: dict[str, list[str]] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)


def ip(*arguments):
    subprocess.run([IP, *arguments], check=True, capture_output=True)


@contextmanager
def namespaces(count):
    """A network namespace per SuperNode, bridged to the SuperLink; loopback if not allowed."""
    number = os.getpid() % 60_000
    name, subnet = f"df{number}", f"10.{200 + number % 50}.{number // 50 % 250}"
    network = Network()
    try:
        with suppress(OSError, subprocess.CalledProcessError):
            made = Network(host=f"{subnet}.1")
            ip("link", "add", f"{name}br", "type", "bridge")
            ip("address", "add", f"{subnet}.1/24", "dev", f"{name}br")
            ip("link", "set", f"{name}br", "up")
            for client in range(count):
                space, here, there = f"{name}-{client}", f"{name}h{client}", f"{name}n{client}"
                ip("netns", "add", space)
                ip("link", "add", here, "type", "veth", "peer", "name", there)
                ip("link", "set", there, "netns", space)
                ip("link", "set", here, "master", f"{name}br", "up")
                address = f"{subnet}.{client + 2}"
                ip("-n", space, "address", "add", f"{address}/24", "dev", there)
                for device in (there, "lo"):
                    ip("-n", space, "link", "set", device, "up")
                made.launchers[f"node-{client}"] = [IP, "netns", "exec", space]
                made.addresses.append(address)
            # A firewall may block it.
            with socket.create_server((made.host, 0)) as server:
                ask = f"import socket; socket.create_connection({server.getsockname()}, 3)"
                ip(*made.launchers["node-0"][1:], sys.executable, "-c", ask)
            network = made
        yield network
    finally:
        # Deleting a namespace removes both ends of its veth pair.
        spaces = (("netns", "del", f"{name}-{client}") for client in range(count))
        for what in (*spaces, ("link", "del", f"{name}br")):
            with suppress(OSError, subprocess.CalledProcessError):
                ip(*what)


@contextmanager
def deployment_of(root, folders, network):
    """The processes of docs/deployment.md: a SuperLink and a SuperNode per folder of a client.

    With TLS and node authentication, each in a home of its own, as on machines of their own.
    """
    root.mkdir()
    host, port = network.host, free_port()
    address = f"{host}:{port}"
    hosts = list(dict.fromkeys([host, LOOPBACK, "localhost"]))
    certificates = make_certificates(root / "certificates", hosts)
    public = [make_key(root / f"node-{k}.key") for k in range(len(folders))]
    lines = [f"{k} {key.read_text()}" for k, key in enumerate(public)]
    (root / "peer-keys").write_text("".join(lines))
    home = root / "operator"
    link = SuperLink(home, flower_environment(home), root / "superlink.log")
    home.mkdir()
    (home / "config.toml").write_text(superlink.operator_config(address, certificates.ca))
    running = []

    def spawn(name, program, *options):
        home = root / name
        home.mkdir()
        words = [*network.launchers.get(name, ()), str(tool(program)), *map(str, options)]
        running.append(ProcessTree(words, flower_environment(home), home, root / f"{name}.log"))
        return running[-1]

    def node(client):
        key = public[client].with_suffix("")
        # Every node has a key already, so that all of them sign and check (decision 8).
        settings = {wire.PARTITION_ID: client, wire.NUM_PARTITIONS: len(folders)}
        settings |= {wire.SIGNING_KEY: str(key), wire.PEER_KEYS: str(root / "peer-keys")}
        settings |= {wire.DATA_PATH: str(folders[client].resolve()), **TERMS}
        pairs = " ".join(f"{name}={toml_value(value)}" for name, value in settings.items())
        words = ["--superlink", address, "--root-certificates", certificates.ca]
        words += ["--node-config", pairs, "--auth-supernode-private-key", key]
        return spawn(f"node-{client}", "dance-flwr", "supernode", *words)

    try:
        options = superlink.superlink_options(host, port, certificates)
        server = spawn("superlink", "flower-superlink", "--database", root / "state.db", *options)
        superlink.wait_until_healthy(server, f"https://{address}", link.log, certificates.ca)
        for key in public:  # before the nodes start: an unknown key is refused
            link.flwr("supernode", "register", str(key), superlink.NAME)
        nodes = [node(client) for client in range(len(folders))]
        yield SimpleNamespace(link=link, nodes=nodes, peer_keys=root / "peer-keys")
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(stop, reversed(running)))


@pytest.fixture(scope="module")
def deployed(run_config, tmp_path_factory):
    """Two runs of one deployment with masks, of a server with other code and of an honest one, and
    the honest one in this process, without masks.
    """
    home = tmp_path_factory.mktemp("deployed")
    keys = {"rounds": 2, "evaluate_every": 2, "privacy_secure_aggregation": True}
    limits = {"node_timeout": 60.0, "round_timeout": 120.0}
    config = run_config(clients=CLIENTS, out=str(home / "there"), **keys, **limits)
    partition, trace = prepare(config).folder, home / "trace"
    open_config = replace(config, privacy=replace(config.privacy, secure_aggregation=False))
    here = in_process.run_in_process(open_config, home / "here", lambda row: None)
    folders = [partition / f"client-{k}" for k in range(CLIENTS)]

    def altered(scratch, method):
        app = submitted_app(scratch)
        with (app / "client_app.py").open("a") as code:
            code.write(f"\nfrom pathlib import Path\nPath({str(trace)!r}).write_text('ran')\n")
        return app

    with pytest.MonkeyPatch.context() as patch, namespaces(CLIENTS) as network:
        # A question after a run is a process of its own, and a slow machine is silent for long.
        patch.setattr(superlink, "_STATUS_EVERY_SECONDS", 120.0)
        with deployment_of(home / "deployment", folders, network) as deployment:
            link, signed = deployment.link, replace(config, node_keys=str(deployment.peer_keys))
            with pytest.MonkeyPatch.context() as other:
                other.setattr(superlink, "submitted_app", altered)
                number = link.submit(replace(signed, out=str(home / "altered")))
                with pytest.raises(UserError) as refused:
                    superlink.follow(link, number, home / "altered", print)
            node, launcher = deployment.nodes[0], network.launchers.get("node-0", ())
            assert knock(doors(node), os.getuid(), launcher), "its own user finds a door"
            begin = time.monotonic()
            with thief(node, launcher) as stolen:
                superlink.follow(link, link.submit(signed), home / "there", lambda row: None)
            print(f"seconds of the run: {time.monotonic() - begin:.0f}")
    facts = {"network": network, "folders": folders, "trace": trace, "stolen": stolen, "here": here}
    return SimpleNamespace(home=home, refused=str(refused.value), **facts)


deployment = pytest.mark.xdist_group("deployment")


@pytest.mark.flower
@deployment
def test_nodes_run_their_own_code_for_nobody_but_their_server(deployed):
    assert "client_app.py" in deployed.refused and not deployed.trace.exists()
    assert deployed.stolen == []
    # What a server sends is not unpacked at a node.
    assert [*(deployed.home / "deployment").glob("node-*/apps/*")] == []


@pytest.mark.flower
@deployment
def test_a_deployment_with_masks_is_the_run_of_one_process(deployed):
    said = (deployed.home / "deployment" / "superlink.log").read_text(errors="replace")
    # uvicorn names who asked
    assert all(f" {address}:" in said for address in deployed.network.addresses)
    here, there = deployed.here, json.loads((deployed.home / "there" / "result.json").read_text())
    assert there["partition_dir"] is None and there["privacy"]["secure_aggregation"] is True
    assert "survivors" in {row["stage"] for row in there["messages"]}  # clients signed
    # A node logs rounds and its own result, however many messages a masked round has.
    log = (deployed.home / "deployment" / "node-0.log").read_text(errors="replace")
    flower = [line.split(":", 1)[1].strip() for line in log.splitlines() if "INFO \x1b[0m:" in line]
    said = [line for line in flower if re.match("round|the final model", line)]
    assert "" not in flower and "Start ClientApp" not in flower and len(flower) < len(said) + 9
    assert [line.split(":")[0] for line in said] == [
        "round 1",
        "round 2",
        "the final model at this site",
    ]
    left, right = load_model(deployed.home / "here"), load_model(deployed.home / "there")
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], atol=1e-4, rtol=0)
    for name in ("test_accuracy", "val_accuracy", "test_macro_f1"):
        assert here[name] == pytest.approx(there[name], abs=1e-4)
    assert (deployed.folders[-1] / "runs" / there["run"] / "evidence" / "final.npz").is_file()
