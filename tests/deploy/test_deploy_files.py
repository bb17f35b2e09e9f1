"""The files of `deploy/` and the guides: they parse, hold no secrets, and use flags that exist."""

import argparse
import configparser
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import click
import httpx
import pytest
import typer
import yaml
from flwr.common.config import parse_config_args
from support.processes import free_port
from support.project import PROJECT

from dance_flwr.cli.main import app as own
from dance_flwr.config.tree import parse
from dance_flwr.deploy.certificates import make_certificates
from dance_flwr.deploy.invitation import SERVER_UNIT, SITE_UNIT, TERMS, unit_text
from dance_flwr.deploy.supernode import SETTLED
from dance_flwr.federation.node_config import refuse_beyond, terms_of
from dance_flwr.federation.privacy.dp import shares_needed

DEPLOY = PROJECT / "deploy"
UNITS = [DEPLOY / SERVER_UNIT, DEPLOY / SITE_UNIT]
BY_HAND = PROJECT / "docs" / "deployment-by-hand.md"
GUIDES = [PROJECT / "docs" / "deployment.md", BY_HAND]
SERVICE_KEYS = """
    image build restart init read_only tmpfs cap_drop security_opt profiles command ports volumes
    healthcheck depends_on environment ulimits
"""


COMPOSE = DEPLOY / "compose.yaml"


def services():
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]


def unit(path):
    """A unit's sections; of a key that repeats, the last one."""
    parser = configparser.ConfigParser(
        strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",)
    )
    parser.optionxform = str
    parser.read_string(path.read_text(encoding="utf-8").replace("\\\n", " "))
    return parser


def test_nothing_outside_a_container_reaches_the_tasks_of_its_node():
    """Its Runtime API is a Unix socket in its own /tmp; nothing of the host is shared with it."""
    node = services()["supernode"]
    assert set(node) <= {*SERVICE_KEYS.split()}  # no network_mode, pid or ipc of the host
    assert "ports" not in node
    assert node["tmpfs"] == ["/tmp"]
    assert not any("/tmp" in mount for mount in node["volumes"])
    assert "/tmp/dance-flwr-*/supernode" in node["healthcheck"]["test"][-1]


def assert_flower_takes(command):
    """Flower's own parser takes the options; none of them is unknown or deprecated."""
    program, *arguments = command
    if [program, *arguments[:1]] == ["dance-flwr", "supernode"]:
        program, arguments = "flower-supernode", arguments[1:]
        if "--accept-code" in arguments:  # the one option that is not Flower's
            place = arguments.index("--accept-code")
            del arguments[place : place + 2]
        assert not {word.partition("=")[0] for word in arguments} & set(SETTLED)
    name = program.removeprefix("flower-")
    module = import_module(f"flwr.{name}.cli.flower_{name}")
    parser: argparse.ArgumentParser = getattr(module, f"_parse_args_run_{name}")()
    parser.parse_args(arguments)
    told = {flag: action.help or "" for action in parser._actions for flag in action.option_strings}
    for argument in arguments:
        assert "eprecated" not in told.get(argument.partition("=")[0], ""), argument


def test_compose_has_tls_authentication_health_and_no_secrets():
    found = services()
    assert set(found) == {"superlink", "gate", "supernode"}
    for name, service in found.items():
        assert set(service) <= {*SERVICE_KEYS.split()}, name
        assert service["healthcheck"]["test"][0].startswith("CMD")
        assert "no-new-privileges:true" in service["security_opt"]
        assert name == "gate" or service["ulimits"] == {"core": 0}
    assert "--enable-supernode-auth" in found["superlink"]["command"]
    assert not any(
        "insecure" in part for name in ("superlink", "supernode") for part in found[name]["command"]
    )
    assert all(mount.startswith("127.0.0.1:") for mount in found["superlink"]["ports"])
    assert any(mount.endswith(":/data:rw") for mount in found["supernode"]["volumes"])
    assert "ports" not in found["supernode"]  # a node only makes outgoing connections
    for file in (path for path in DEPLOY.rglob("*") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        assert not re.search(
            r"BEGIN [A-Z ]*PRIVATE KEY|password|token|secret *[:=]",
            text,
            re.IGNORECASE,
        ), file


@pytest.mark.parametrize("name", ["superlink", "supernode"])
def test_compose_starts_programs_with_flags_that_flower_has(name):
    service = services()[name]
    assert_flower_takes(service["command"])
    compile(service["healthcheck"]["test"][-1], name, "exec")


def checked(path):
    """`check-jsonschema` brings the schema of Compose with it and fetches nothing."""
    if not find_spec("check_jsonschema"):
        pytest.skip("no check-jsonschema here: pip install 'dance-flwr[dev]'")
    command = [sys.executable, "-m", "check_jsonschema"]
    command += ["--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_compose_file_is_valid_by_the_schema_of_compose(tmp_path):
    done = checked(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    broken["services"]["superlink"]["cap_drop"] = "ALL"
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(broken), encoding="utf-8")
    assert checked(tmp_path / "compose.yaml").returncode == 1


def test_the_gate_passes_the_fleet_api_and_health_only():
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert text.count("{") == text.count("}")
    blocks = dict(re.findall(r"location (.+?) \{\s*(.+?);\s*\}", text))
    assert blocks == {
        "/v1/fleet/": "proxy_pass https://superlink",
        "= /health": "proxy_pass https://superlink",
        "/": "return 403",
    }


def address(name):
    return re.findall(r"^server (\S+);$", (DEPLOY / name).read_text("utf-8"), re.MULTILINE)


def test_the_gate_finds_the_superlink_beside_it_and_in_compose():
    assert address("upstream.conf") == ["127.0.0.1:8000"]
    assert address("upstream.compose.conf") == ["superlink:8000"]
    gate = services()["gate"]["volumes"]
    assert "./upstream.compose.conf:/etc/nginx/upstream.conf:ro" in gate
    assert "--port=8000" in services()["superlink"]["command"]


@pytest.mark.skipif(not shutil.which("nginx") or os.getuid() != 0, reason="needs nginx, and root")
def test_the_gate_starts_outside_of_a_container(tmp_path):
    make_certificates(tmp_path / "certificates", ["superlink"])
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text("utf-8").replace("listen 9092", f"listen {port}")
    (tmp_path / "nginx.conf").write_text(text)
    shutil.copy(DEPLOY / "upstream.conf", tmp_path)
    command = ["nginx", "-c", str(tmp_path / "nginx.conf")]
    options = ["-g", f"daemon off; pid {tmp_path / 'pid'};"]
    checked = subprocess.run([*command, "-t", *options], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    gate = subprocess.Popen([*command, *options])
    try:
        url = f"https://127.0.0.1:{port}"
        authority = ssl.create_default_context(cafile=tmp_path / "certificates" / "ca.crt")
        authority.check_hostname = False
        transport = httpx.HTTPTransport(verify=authority, retries=10)
        with httpx.Client(transport=transport, trust_env=False) as client:
            assert client.get(f"{url}/v1/control/runs").status_code == 403
            assert client.get(f"{url}/health").status_code == 502  # no SuperLink here
    finally:
        gate.terminate()
        gate.wait()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_start_commands_that_exist(path):
    service = unit(path)["Service"]
    for key, value in {
        "LimitCORE": "0",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "User": "dance-flwr",
        "Restart": "on-failure",
    }.items():
        assert service[key] == value
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == "/opt/dance-flwr/bin/dance-flwr"
    command = typer.main.get_command(own)
    assert {word for word in arguments if word.startswith("--")} <= flags_of(command, arguments)
    if "supernode" in path.name:
        assert (service["IPAddressDeny"], service["IPAddressAllow"]) == ("any", "localhost")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_for_a_folder_of_this_machine_is_as_hardened(path):
    text = unit_text(path.name, "/srv/north", ["192.0.2.10"])
    ours, release = text.splitlines(), path.read_text(encoding="utf-8").splitlines()
    assert [line for line in release if line not in ours] == [
        line
        for line in release
        if "/var/lib/dance-flwr" in line
        or "/opt/dance-flwr" in line
        or "%i" in line
        or line.startswith(("StateDirectory", "IPAddressAllow"))
    ]
    assert "ReadWritePaths=/srv/north" in ours and "%i" not in text
    assert ("IPAddressAllow=localhost 192.0.2.10" in ours) is ("supernode" in path.name)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_verifies_the_units(path, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    # The programs are not installed here; everything else is verified as it is.
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(encoding="utf-8"))
    copy = tmp_path / path.name.replace("@.", "@north.")
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def variables(name):
    """What a file of variables sets; values in single quotes mean themselves."""
    lines = (DEPLOY / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value.removeprefix("'").removesuffix("'") for key, _, value in pairs}


def node_configs():
    """The node configuration of everything that starts a node, as the node reads it."""
    node = variables("node.env.example")

    def value(match):
        name, _, default = match[1].partition(":-")
        return default or node[name]

    text = services()["supernode"]["command"][-1].removeprefix("--node-config=")
    plain = re.sub(r"\$\{([^}]+)\}", value, text)
    compose = parse_config_args([" ".join(plain.split())])
    env = parse_config_args([f"partition-id=0 num-partitions=5 {node['TERMS']}"])
    site = dict(TERMS) | {"partition-id": 0, "num-partitions": 3}  # as `site join` writes them
    return {"compose": compose, "env": env, "site": site}


def test_every_node_that_is_started_has_terms():
    """Masks, a floor of clients, bounds of work, and the sizes of what it computes."""
    for name, config in node_configs().items():
        terms = terms_of(config)
        assert terms.masks and 2 <= terms.min_clients <= config["num-partitions"], name
        assert max(terms.max_rounds, terms.max_trainings, terms.max_local_epochs) <= 1000, name
        assert terms.max_hidden_dim <= 1024 and terms.methods and terms.limits, name


def test_the_terms_of_the_files_are_the_same_everywhere():
    terms = {name: terms_of(config) for name, config in node_configs().items()}
    assert terms["env"] == terms["compose"] == terms["site"]
    assert terms["site"].min_clients == 3


def test_the_run_of_the_guide_is_within_the_terms_of_its_nodes():
    (settings,) = re.findall(r'--run-config "(clients=[^"]+)"', BY_HAND.read_text("utf-8"))
    config = parse(parse_config_args([settings]))
    node = node_configs()["compose"]
    assert config.privacy.secure_aggregation and config.clients == node["num-partitions"]
    refuse_beyond(terms_of(node), config)
    threshold = shares_needed(config.clients, config.privacy.threshold)
    assert threshold >= terms_of(node).min_clients


def commands_of_the_guide():
    """Every line of a code block, continued lines joined, without comments; and what the text names
    in passing.
    """
    text = "\n".join(path.read_text(encoding="utf-8") for path in GUIDES)
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`((?:dance-flwr|flwr) [^\s`]+ [^`]+)`", text)
    return [
        shlex.split(line, comments=True)
        for line in lines
        if line.strip() and not line.startswith("#")
    ]


def flags_of(command, words):
    """Follow the words of a typer command line to the command they name; return its flags."""
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        command = command.commands[words[0]]
        words = words[1:]
    return {
        flag
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def test_every_command_of_the_guide_exists_with_its_flags():
    from flwr.cli.app import app as flwr

    groups = {"dance-flwr": typer.main.get_command(own), "flwr": typer.main.get_command(flwr)}
    seen = []
    for words in commands_of_the_guide():
        program = words[0].rpartition("/")[2]
        flags = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[1:2] == ["supernode"] and program == "dance-flwr":
            assert_flower_takes([program, *words[1:]])
            seen.append("supernode")
        elif program in groups:
            assert flags <= flags_of(groups[program], words[1:]), words
            seen.append(program)
        elif program == "flower-superlink":
            assert_flower_takes([program, *words[1:]])
            seen.append(program)
    assert {"dance-flwr", "flwr", "flower-superlink", "supernode"} <= set(seen)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_files_that_the_guide_names_exist(guide):
    named = r"`((?:deploy|docs|tests|dance_flwr)/[\w/@-][\w./@-]+)`"
    for name in re.findall(named, guide.read_text(encoding="utf-8")):
        assert (PROJECT / name).exists(), name
