"""Compose files by the schema of the Compose specification, and by the options of the programs
that they start.
"""

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml
from support.project import PROJECT

DEPLOY = PROJECT / "deploy"
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))


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
