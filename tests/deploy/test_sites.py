"""A federation at its server and its sites: each command alone, then all of them as processes."""

import csv
import json
import shutil
import socket
import stat
import time
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from support.graphs import SMALL
from support.processes import free_port

from dance_flwr.config.tree import parse
from dance_flwr.data.federation_file import read_agreement
from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.imports.loading import load_graph
from dance_flwr.deploy import bundle, federation, prefork
from dance_flwr.deploy.bundle import accepted_code
from dance_flwr.deploy.certificates import make_certificates
from dance_flwr.deploy.federation import Federation, cannot_lose_one
from dance_flwr.deploy.invitation import TERMS, Invitation
from dance_flwr.deploy.process_tree import ProcessTree, stop
from dance_flwr.deploy.site import Site, waiting_code
from dance_flwr.deploy.superlink import SuperLink, flower_environment
from dance_flwr.errors import UserError
from dance_flwr.federation.node_config import terms_of
from dance_flwr.fingerprint import provenance
from dance_flwr.runs.locks import SERVER, exclusive
from dance_flwr.runs.run import latest_run

SITES = ("north", "south", "west")
_PATIENCE_SECONDS = 600.0


class Machines:
    """A server and three sites, each with its folder below `root`.

    Parameters
    ----------
    log : receives the lines of the transcript
    """

    def __init__(self, root, log):
        self.root, self.log = root.resolve(), log
        self._running = {}
        self._began = time.monotonic()

    def call(self, machine, *words):
        """Run `dance-flwr` with these words on a machine to its end; return its output."""
        process = self._start(machine, words, log := self.root / f"{machine}.log")
        ended = process.wait(_PATIENCE_SECONDS)
        stop(process)
        for line in _read(log):
            self.log(f"    {line}")
        assert ended == 0, f"{' '.join(words)}: expected exit code 0, found {ended}"
        return _read(log)

    def start(self, machine, line, *words):
        """Start `dance-flwr` in the foreground of a machine, until it has said a line."""
        log = self.root / f"{machine}-foreground.log"
        self._running[machine] = process = self._start(machine, words, log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any(line in each for each in _read(log)):
            assert process.poll() is None and time.monotonic() < deadline, _read(log)
            time.sleep(0.2)
        self.log(f"    ... {line}")

    def close(self):
        """Stop what runs in the foreground, the nodes first."""
        for process in reversed(self._running.values()):
            stop(process)

    def _start(self, machine, words, log):
        seconds = time.monotonic() - self._began
        self.log(f"{seconds:5.0f} s  {machine}$ dance-flwr {' '.join(words)}")
        folder = self.root / machine
        folder.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        # Not as in a home: what a command stores is in its own folders.
        environment = flower_environment(folder / "home") | {"HOME": str(folder)}
        for name in ("FLWR_HOME", "DANCE_FLWR_HOME"):
            environment.pop(name, None)
        return ProcessTree(["dance-flwr", *words], environment, folder, log)


def _read(log):
    return log.read_text(errors="replace").splitlines()


def found(machines, graph, settings):
    """Walk from nothing to three nodes that are online.

    Each site has an equal share of the nodes, and the edges among them.

    Parameters
    ----------
    settings : keys of every run, KEY=VALUE
    """
    root = machines.root
    parts = np.array_split(np.random.default_rng(0).permutation(graph.num_nodes), len(SITES))
    for site, part in zip(SITES, parts, strict=True):
        write_folder(graph.subgraph(np.sort(part), site), root / site / "graph")
    ports = ["--port", str(free_port()), "--superlink-port", str(free_port())]
    pairs = [word for pair in settings for word in ("--set", pair)]
    classes = ",".join(graph.class_names)
    init = ["--host", "127.0.0.1", "--classes", classes, "--sites", ",".join(SITES)]
    machines.call("server", "deploy", "init", "hospitals", *init, *ports, *pairs)
    machines.start("server", "serving", "deploy", "serve")
    for site in SITES:
        shutil.copy(root / f"server/hospitals/invitations/{site}.toml", root / site)
        machines.call(site, "site", "join", f"{site}.toml", "graph")
    for site in SITES:
        shutil.copy(root / site / site / f"{site}.pub", root / "server")
        machines.call("server", "deploy", "admit", f"{site}.pub")
    for site in SITES:
        shutil.copy(root / "server/hospitals/peer-keys", root / site)
        words = ("site", "start", "--peer-keys", "peer-keys")
        machines.start(site, "SuperNode ID", *words)


KEYS = ("hidden-dim", "encoder", "encoder-precision", "device", "chunk-tokens", "max-chunks")
OF_RUNS = [*(f"{key}={SMALL[key]}" for key in KEYS), "rounds=1", "node-timeout=60.0"]
CLASSES = "astronomy,cooking,sailing"


def exposed(folder):
    """Files and folders that other users may open."""
    paths = (folder, *folder.rglob("*"))
    return [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o077]


@pytest.fixture
def hospitals(cli, tmp_path, monkeypatch):
    """The folder of a new federation, in the working folder."""
    monkeypatch.chdir(tmp_path)
    sets = [word for pair in OF_RUNS for word in ("--set", pair)]
    words = ["--host", "127.0.0.1", "--classes", CLASSES, "--sites", ",".join(SITES)]
    done = cli("deploy", "init", "hospitals", *words, "--port", free_port(), *sets)
    assert done.code == 0, done.err
    # Said before the first key is made.
    assert "invite sites until there are four" in done.out
    return Federation.open(None)


@pytest.fixture
def north(hospitals, cli, tiny):
    """A site that has joined; its SuperLink does not run yet."""
    done = cli("site", "join", "hospitals/invitations/north.toml", tiny)
    assert done.code == 2 and done.out.count("PROBLEM") == 1
    return Site(hospitals.folder.parent / "north")


def test_a_new_federation_has_an_authority_and_invitations_without_secrets(hospitals):
    agreement = read_agreement(hospitals.folder / "invitations" / "west.toml")
    assert agreement.class_names == tuple(CLASSES.split(","))
    invitation = Invitation.read(hospitals.folder / "invitations" / "west.toml")
    assert (invitation.federation, invitation.client) == ("hospitals", 2)
    assert invitation.ca == hospitals.certificates.ca.read_text()
    terms = terms_of(invitation.terms)
    assert terms.masks and terms.min_clients == 3 and terms == terms_of(TERMS)
    for path in (hospitals.folder / "invitations").iterdir():
        assert "PRIVATE" not in path.read_text()
    assert exposed(hospitals.folder) == []


@pytest.mark.parametrize(
    ("sites", "keys", "advice"),
    [
        (2, {}, "invite sites until there are four"),
        (3, {}, "invite sites until there are four"),
        (4, {}, ""),
        (4, {"min-valid-replies": 4}, "lower min-valid-replies"),
        (4, {"privacy.secure-aggregation": True}, ""),
        (5, {"privacy.secure-aggregation": True, "privacy.threshold": 1.0}, "lower privacy.thresh"),
    ],
)
def test_who_cannot_lose_a_site_is_told_so(sites, keys, advice):
    line = cannot_lose_one(sites, parse({"clients": sites, **keys}))
    assert advice in line and bool(advice) == bool(line)


def test_a_site_whose_data_or_terms_are_gone_is_told_so(north, cli):
    north.client_folder.rename(north.folder / "moved")
    for command in ("results", "privacy"):
        done = cli("site", command, "--site", north.folder)
        assert done.code == 2 and "correct data-path in" in done.err[-1]
    (north.folder / "site.toml").write_text("methods = dance")
    done = cli("site", "start", "--site", north.folder)
    assert done.code == 2 and "expected a TOML file" in done.err[-1]


def test_a_site_has_its_key_data_and_terms_and_no_other_user_reads_them(north, hospitals):
    assert exposed(north.folder) == []
    assert stat.S_IMODE((north.folder / "node.key").stat().st_mode) == 0o600
    assert north.public_key.read_text().split()[2] == "hospitals/north"
    assert {name: point.status.value for name, point in north.check_joined().items()} == {
        **dict.fromkeys(("key", "terms", "agreed file", "data", "permissions"), "ok"),
        **dict.fromkeys(("encoder", "labels", "device", "disk", "software", "protocol"), "ok"),
        **dict.fromkeys(("TLS", "certificate", "clock", "registration"), "not checked"),
        "SuperLink": "PROBLEM",
    }
    assert list(accepted_code(north.folder)) == [provenance()]
    assert (
        f"ReadWritePaths={north.folder}"
        in (north.folder / "dance-flwr-supernode-north.service").read_text()
    )


def test_a_graph_with_another_class_leaves_no_site(hospitals, cli, tiny):
    path = hospitals.folder / "invitations" / "north.toml"
    text = path.read_text().replace('"sailing"', '"rowing"')
    path.write_text(text)
    done = cli("site", "join", path, tiny)
    assert done.code == 2 and "found 'sailing'; rename" in done.err[-1]
    assert not (hospitals.folder.parent / "north").exists()
    done = cli("site", "join", hospitals.folder / "federation.toml", tiny, "--out", "x")
    assert done.code == 2 and "expected a site's invitation" in done.err[-1]


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("max-rounds = 100", 'data-path = "/home"'),
        ("max-rounds = 100", 'signing-key = "/home/key"'),
        ("max-rounds = 100", "max-rounds = [1]"),
        ('site = "north"', 'site = "../north"'),
        ('federation = "hospitals"', 'federation = "a/b"'),
        ('superlink = "127.0.0.1', 'superlink = "127.0.0.1:1'),
    ],
)
def test_an_invitation_says_nothing_of_the_node_itself(hospitals, line, other):
    path = hospitals.folder / "invitations" / "north.toml"
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, other))
    with pytest.raises(UserError, match="expected"):
        Invitation.read(path)


def test_a_node_starts_with_keys_and_accepted_code_only(north, cli, monkeypatch):
    done = cli("site", "start")
    assert done.code == 2 and "expected the public keys of all sites" in done.err[-1]
    (north.folder / "one").write_text(f"0 {north.public_key.read_text()}")
    done = cli("site", "start", "--peer-keys", north.folder / "one")
    assert done.code == 2 and "expected the keys of 3 sites" in done.err[-1]

    monkeypatch.setattr("dance_flwr.deploy.site.provenance", lambda: "0123456789abcdef")
    done = cli("site", "start")
    assert done.code == 2 and f"0123456789abcdef --site '{north.folder}'`" in done.err[-1]
    assert [line[:28] for line in cli("site", "accept").out.splitlines()] == [
        f"accepted    {provenance()}",
        "waiting     0123456789abcdef",
    ]
    assert cli("site", "accept", "fedcba9876543210").code == 2
    assert cli("site", "accept", "0123456789abcdef").code == 0
    assert "public keys" in cli("site", "start").err[-1]


def test_a_difference_that_is_refused_waits_at_the_site_to_be_accepted(north, cli, monkeypatch):
    monkeypatch.setenv(prefork.SITE, str(north.folder))
    monkeypatch.setattr(bundle, "differences", lambda content: {"client_app.py": content})
    monkeypatch.setattr(prefork.messages, "error_reply", lambda message, reason: reason)
    app = prefork.InstalledApp(lambda message, context: "answer", ())
    for _ in range(2):
        app.install(b"other")
        assert "client_app.py" in app.answer(None, None)
    (digest,) = waiting_code(north.folder)
    assert digest in app.answer(None, None)
    assert cli("site", "accept", digest).code == 0
    app.install(b"other")
    assert app.answer(None, None) == "answer"
    app.install(b"third")
    assert app.answer(None, None) != "answer"


@pytest.fixture
def admitting(hospitals, tmp_path, monkeypatch):
    """A SuperLink in memory, whose nodes have a state, and the keys of three sites."""
    from dance_flwr.deploy.certificates import make_key

    nodes, numbers = {}, count(100)

    def flwr(self, *words):
        if words[:2] == ("supernode", "register"):
            nodes[number := str(next(numbers))] = "registered"
            return {"node-id": number}
        if words[:2] == ("supernode", "unregister"):
            del nodes[words[2]]
        return {"nodes": [{"node-id": node, "status": state} for node, state in nodes.items()]}

    monkeypatch.setattr(SuperLink, "flwr", flwr)
    files = {}
    for site in (*SITES, "other"):
        public = make_key(tmp_path / f"{site}.key")
        files[site] = tmp_path / f"{site}.pub"
        name = "north" if site == "other" else site
        files[site].write_text(f"{public.read_text().strip()} hospitals/{name}\n")
    return SimpleNamespace(nodes=nodes, files=files)


def test_sites_are_admitted_by_name_and_the_last_one_makes_the_peer_keys(admitting, hospitals, cli):
    done = cli("deploy", "admit", admitting.files["north"])
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["north", "registered"],
        ["south", "not"],
        ["west", "not"],
    ]
    assert not hospitals.peer_keys.exists()
    assert cli("deploy", "admit", admitting.files["south"], admitting.files["west"]).code == 0
    first = hospitals.peer_keys.read_text()
    assert cli("deploy", "admit", admitting.files["other"]).code == 2
    assert hospitals.peer_keys.read_text() == first
    assert cli("deploy", "admit", "--replace", admitting.files["other"]).code == 0
    second = hospitals.peer_keys.read_text()
    assert second.splitlines()[0] != first.splitlines()[0]
    assert second.splitlines()[1:] == first.splitlines()[1:] and len(admitting.nodes) == 3
    stranger = admitting.files["west"].with_name("stranger.pub")
    stranger.write_text(admitting.files["west"].read_text().replace("/west", "/south"))
    assert (
        "expected a key of its own, found that of west"
        in cli("deploy", "admit", stranger, "--replace").err[-1]
    )
    stranger.write_text(admitting.files["west"].read_text().replace("/west", "/east"))
    assert "expected the key of a site" in cli("deploy", "admit", stranger).err[-1]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ("rounds=101", "rounds: expected at most 100 (max-rounds of this node)"),
        ("method=ditto", "method: expected one of dance, fedavg-full"),
        ("privacy.secure-aggregation=false", "privacy.secure-aggregation: expected true"),
        ("learning-rate=0.5", "learning-rate: expected at most 0.1"),
        ("rounds=2", "expected 3 of 3 sites online, found 2; missing: west (offline)"),
    ],
)
def test_what_nodes_would_refuse_is_refused_before_it_is_sent(
    admitting, hospitals, cli, monkeypatch, pair, reason
):
    assert cli("deploy", "admit", *(admitting.files[site] for site in SITES)).code == 0
    admitting.nodes.update(zip(admitting.nodes, ("online", "online", "offline"), strict=True))
    monkeypatch.setattr(SuperLink, "submit", lambda *_: pytest.fail("it was sent"))
    done = cli("deploy", "run", "--set", pair)
    assert done.code == 2 and reason in done.err[-1]


def test_a_run_is_the_latest_and_a_site_that_fails_is_named(admitting, hospitals, cli, monkeypatch):
    assert cli("deploy", "admit", *(admitting.files[site] for site in SITES)).code == 0
    admitting.nodes.update(dict.fromkeys(admitting.nodes, "online"))

    def follow(link, number, folder, *_):
        folder.mkdir(parents=True)
        raise UserError("found 2; client 2: Node Unavailable; client 27: of no site")

    monkeypatch.setattr(SuperLink, "submit", lambda *_: "1")
    monkeypatch.setattr(federation, "follow", follow)
    done = cli("deploy", "run", "--name", "first")
    assert done.code == 2
    assert "found 2; west (client 2): Node Unavailable; client 27: of no site" in done.err[-1]
    assert latest_run() == (folder := hospitals.folder / "runs" / "first")
    monkeypatch.chdir("/")  # the folder of the run tells the federation
    assert str(folder / "resume.toml") in cli("deploy", "run", "--resume", folder).err[-1]


def test_a_run_that_goes_on_without_its_command_gets_no_second_server(
    admitting, hospitals, cli, monkeypatch
):
    assert cli("deploy", "admit", *(admitting.files[site] for site in SITES)).code == 0
    admitting.nodes.update(dict.fromkeys(admitting.nodes, "online"))
    monkeypatch.setattr(SuperLink, "submit", lambda *_: pytest.fail("it was sent"))
    with exclusive(hospitals.folder / "runs" / "first", SERVER):
        done = cli("deploy", "run", "--name", "first")
    assert done.code == 2 and "found its server at work; see `dance-flwr status" in done.err[-1]


def test_a_server_without_the_gate_does_not_serve(hospitals, cli, monkeypatch):
    monkeypatch.setattr(federation.shutil, "which", lambda *_, **__: None)
    assert "expected nginx" in cli("deploy", "serve").err[-1]


def test_a_second_server_leaves_the_logs_of_the_first(hospitals, cli, monkeypatch):
    monkeypatch.setattr(federation, "_nginx", lambda: "nginx")
    (hospitals.folder / "superlink.log").write_text("of the first\n")
    _, _, gate = hospitals.invitation.superlink.partition(":")
    with socket.create_server(("127.0.0.1", int(gate))):
        done = cli("deploy", "serve")
    assert done.code == 2 and ": expected a free port for the " in done.err[-1]
    assert not done.out and (hospitals.folder / "superlink.log").read_text() == "of the first\n"


def test_an_expired_certificate_is_named_at_once(hospitals, cli, tmp_path):
    """Nothing else says why: neither Flower's command nor a server that never becomes healthy."""
    old = make_certificates(tmp_path / "old", ["127.0.0.1"], datetime(2025, 1, 1, tzinfo=UTC))
    shutil.copy(old.certificate, hospitals.certificates.certificate)
    for words in (["serve"], ["run"], ["admit", "north.pub"]):
        done = cli("deploy", *words)
        assert done.code == 2 and len(done.err) == 1
        assert "server.pem: expected a certificate that is valid today, found one" in done.err[0]
        assert "Renew the certificate" in done.err[0]


@pytest.mark.flower
@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
@pytest.mark.xdist_group("deployment")
def test_nine_commands_from_nothing_to_predictions_at_a_site(tiny, tmp_path, monkeypatch):
    lines = []
    machines = Machines(tmp_path, lines.append)
    try:
        found(machines, load_graph(str(tiny)), [*OF_RUNS, "dance.candidates=4"])
        machines.call("server", "deploy", "run", "--name", "first")
        machines.call("north", "site", "results")
    finally:
        print("\n".join(lines))
        machines.close()
    result = json.loads((tmp_path / "server/hospitals/runs/first/result.json").read_text())
    assert result["privacy"]["secure_aggregation"]
    # Clients signed who is in the sum, and the server compared their greetings with their keys.
    assert "survivors" in {row["stage"] for row in result["messages"]}
    site = tmp_path / "north" / "north"
    (folder,) = (site / "results").iterdir()
    with (folder / "predictions.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 24
    assert "<html" in (folder / "audit.html").read_text()[:500]
    facts = json.loads((folder / "bundle" / "bundle.json").read_text())
    assert facts["model_fingerprint"] == result["model_fingerprint"]
    (kept,) = (site / "client" / "runs").glob("*/final.json")
    calibration = json.loads(kept.read_text())["calibration"]
    assert facts["calibration"] == calibration
    assert calibration["temperature"] == result["calibration"]["temperature"]
    assert exposed(site) == []
