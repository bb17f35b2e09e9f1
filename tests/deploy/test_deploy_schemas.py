"""Compose files by the schema of the Compose specification, values of Flower's charts by their
documented parameters, and both by the options of the programs that they start.
"""

import copy
import importlib
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml
from support.helm import SUPERLINK, SUPERNODE, strangers
from support.project import PROJECT

DEPLOY = PROJECT / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
VALUES = {"superlink": SUPERLINK, "supernode": SUPERNODE}


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def checked(path):
    """`check-jsonschema` brings the schema with it and fetches nothing."""
    if not find_spec("check_jsonschema"):
        pytest.skip("no check-jsonschema here: pip install 'dance-flwr[dev]'")
    command = [sys.executable, "-m", "check_jsonschema"]
    command += ["--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True)


def assert_flower_takes(program, arguments):
    """Flower's own parser takes the options; it has no deprecated one among them."""
    name = program.removeprefix("flower-")
    module = importlib.import_module(f"flwr.{name}.cli.flower_{name}")
    parser = getattr(module, f"_parse_args_run_{name}")()
    parser.parse_args(arguments)
    told = {flag: action.help or "" for action in parser._actions for flag in action.option_strings}
    for argument in arguments:
        assert "eprecated" not in told[argument.partition("=")[0]], argument


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files_are_valid_by_the_schema_of_compose(path):
    done = checked(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("restarts",), "always"),
        (("healthcheck", "tests"), ["CMD", "true"]),
        (("cap_drop",), "ALL"),
        (("depends_on", "superlink", "condition"), 3),
    ],
)
def test_the_schema_finds_what_compose_would_refuse(where, value, tmp_path):
    content = read(DEPLOY / "compose.rehearsal.yaml")
    place = content["services"]["node-0"]
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    path = tmp_path / "compose.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert checked(path).returncode == 1


def test_the_rehearsal_has_a_superlink_and_nodes_that_differ_in_their_number_alone():
    services = read(DEPLOY / "compose.rehearsal.yaml")["services"]
    nodes = {name: service for name, service in services.items() if name != "superlink"}
    assert list(nodes) == ["node-0", "node-1", "node-2"]
    first = str(nodes["node-0"])
    for number, (name, service) in enumerate(nodes.items()):
        as_first = re.sub(rf"(node-|client-|partition-id=){number}\b", r"\g<1>0", str(service))
        assert as_first == first, name
        assert "ports" not in service and service["read_only"] and service["cap_drop"] == ["ALL"]
    assert services["superlink"]["ports"] == ["127.0.0.1:8000:8000"]
    volumes = read(DEPLOY / "compose.rehearsal.yaml")["volumes"]
    assert set(volumes) == set(services)


def test_the_rehearsal_starts_what_the_deployment_starts():
    """The same commands, but for the address of the SuperLink and the number of a node."""
    real = read(DEPLOY / "compose.yaml")["services"]
    services = read(DEPLOY / "compose.rehearsal.yaml")["services"]
    assert services["superlink"]["command"] == real["superlink"]["command"]
    own = ("--superlink", "--node-config")
    node, deployed = services["node-0"]["command"], real["supernode"]["command"]
    assert [part for part in node if not part.startswith(own)] == [
        part for part in deployed if not part.startswith(own)
    ]
    assert_flower_takes("flower-superlink", services["superlink"]["command"][1:])
    for name in ("node-0", "node-1", "node-2"):
        assert_flower_takes("flower-supernode", services[name]["command"][2:])


@pytest.mark.parametrize("name", VALUES)
def test_values_are_documented_parameters_of_the_charts(name):
    values = read(DEPLOY / "helm" / f"{name}.yaml")
    assert not strangers(values, VALUES[name])
    broken = copy.deepcopy(values)
    broken[name]["imagee"] = {}
    broken[name]["image"]["tag"] = 1.0  # YAML reads a version without quotes as a number
    broken["tls"]["enabled"] = "yes"
    assert strangers(broken, VALUES[name]) == ["tls.enabled", f"{name}.image.tag", f"{name}.imagee"]


def test_values_start_the_programs_as_the_other_deployments_do():
    superlink = read(DEPLOY / "helm" / "superlink.yaml")["superlink"]
    assert_flower_takes("flower-superlink", superlink["extraArgs"])
    real = read(DEPLOY / "compose.yaml")["services"]["superlink"]["command"]
    wanted = {part for part in real[1:] if not part.startswith(("--ssl", "--port"))}
    assert wanted <= set(superlink["extraArgs"])
    port = next(part for part in superlink["extraArgs"] if part.startswith("--port="))
    assert int(port.partition("=")[2]) == superlink["containerPorts"]["fleet"]
    assert superlink["containerPorts"]["fleet"] == superlink["service"]["servicePortFleet"]
    node = read(DEPLOY / "helm" / "supernode.yaml")["supernode"]["node"]["config"]
    deployed = str(read(DEPLOY / "compose.yaml")["services"]["supernode"]["command"])
    assert set(node) == set(
        re.findall(r"[a-z][\w-]*(?==\S)", deployed.split("node-config=")[1])
    ) - {
        *("max-chunks", "condensation-ratio", "learning-rate")  # within `limits`
    }
    assert_flower_takes("flower-supernode", [])


def test_the_ingress_passes_what_the_gate_passes():
    from flwr.superlink.routers.fleet.router import router as fleet

    ingress = read(DEPLOY / "helm" / "superlink.yaml")["superlink"]["ingress"]
    assert (
        ingress["fleet"]["path"] == f"{fleet.prefix}/" and ingress["fleet"]["pathType"] == "Prefix"
    )
    assert not any(ingress[name]["enabled"] for name in ("control", "serverAppIo", "simulationIo"))


@pytest.mark.parametrize("name", VALUES)
def test_pods_write_where_a_volume_is_and_hold_no_secret(name):
    values = read(DEPLOY / "helm" / f"{name}.yaml")
    mounts = {mount["name"]: mount["mountPath"] for mount in values[name]["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in values[name]["volumes"]}
    assert {"/tmp", "/var/lib/dance-flwr"} <= set(mounts.values())
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    user = values["global"]["securityContext"]["runAsUser"]
    assert f"--uid {user} " in image and values["tls"]["enabled"]
    text = str(values)
    assert "PRIVATE KEY" not in text and "PrivateKey" not in text and "'key'" not in text


def test_images_for_the_charts_start_the_programs():
    text = (DEPLOY / "helm" / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(
        r'^FROM dance-flwr AS (\w+)\nENTRYPOINT \["([\w-]+)"\]$', text, re.MULTILINE
    )
    assert stages == [(name, f"flower-{name}") for name in VALUES]
    for name in VALUES:
        image = read(DEPLOY / "helm" / f"{name}.yaml")[name]["image"]
        tag = f"{image['registry']}/{image['repository']}:{image['tag']}"
        assert f"--target {name} --tag {tag} " in text
