"""How tests are dealt to workers: fixtures of modules are made once, long tests come first."""

from pathlib import Path, PurePath

import pytest

from support.project import PROJECT


def schedule(items: list[pytest.Item]) -> None:
    """Group tests that share a fixture of their module, and start the long ones first.

    Without it every worker makes every such fixture, as tests are dealt one at a time. A fixture
    with parameters is a group per parameter, so that the workers share its runs. Tests of a named
    group follow one another on one worker, which takes long, too.
    """
    for item in items:
        if is_quick(item):
            item.add_marker("quick")
        if is_system(item):
            item.add_marker("system")
    late = {item: item.get_closest_marker("long") is None for item in items}
    for item in items:
        if item.get_closest_marker("xdist_group") is not None:
            late[item] = False
        elif group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=late.__getitem__)


# What starts processes, federations or a browser, or reads a real graph.
_SLOW_FIXTURES = {"run", "cli", "browser", "page", "mounted", "traced"}
_SLOW_MARKS = ("flower", "cora", "llm", "long")
_SLOW_FOLDERS = ("api", "cli", "deploy", "pages", "redteam", "runs", "rivals", "studies")
# Files that take seconds, measured: `make test-quick` ends within 60 s on two cores.
_SLOW_FILES = (
    "client_data/test_derived",
    "client_data/test_probe",
    "config/test_plugins",
    "dance/test_theory",
    "dance/test_topology",
    "dance/test_weighing",
    "data/graphs/test_catalogue",
    "data/graphs/test_import",
    "data/imports/test_networkx",
    "data/text/test_bank",
    "evidence/test_summaries",
    "federation/privacy/test_dp",
    "federation/server/test_round",
    "llm/test_call_counts",
    "llm/test_model_file",
    "nn/test_neighbourhood",
)


# `make test-system`: what looks at whole processes from outside, and takes minutes to start them.
_SYSTEM_GROUPS = {"browser", "deployment", "engine"}
_SYSTEM_FILES = (
    "api/test_notebooks",
    "cli/test_terminal",
    "deploy/test_prefork",
    "redteam/test_listeners",
    "redteam/test_signals",
    "redteam/test_supernode",
    "test_examples",
    "test_outside_plugins",
    "test_wheel",
)


def place_of(path: Path) -> PurePath:
    """Return where a file of tests stands: in tests/, or below the name of the other package."""
    place = path.relative_to(PROJECT)
    return PurePath(*place.parts[1:]) if place.parts[0] == "tests" else place


def is_slow(place: PurePath) -> bool:
    """Whether no test of a file is part of `make test-quick`."""
    return (
        place.parts[0] in _SLOW_FOLDERS
        or place.as_posix().startswith(_SLOW_FILES)
        or (len(place.parts) == 1 and place.name != "test_architecture.py")
    )


def is_system(item: pytest.Item) -> bool:
    """Whether a test starts engines, deployments, browsers, notebooks or an installed wheel."""
    path = place_of(item.path).as_posix()
    group = item.get_closest_marker("xdist_group")
    return (
        path.startswith(_SYSTEM_FILES)
        or item.get_closest_marker("flower") is not None
        or (group is not None and group.args[0] in _SYSTEM_GROUPS)
    )


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is part of `make test-quick`, which runs while code is being written."""
    return not (
        is_slow(place_of(item.path))
        or _SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        or any(item.get_closest_marker(mark) for mark in _SLOW_MARKS)
    )


def _group(item: pytest.Item) -> str:
    """Return a name of the module, and of the parameters of its fixtures; "" = shares nothing."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    shared = [name for name, found in fixtures.items() if found[-1].scope in ("module", "class")]
    if not shared:
        return ""
    chosen = item.callspec.indices if hasattr(item, "callspec") else {}
    places = [f"{name}{chosen[name]}" for name in sorted(shared) if name in chosen]
    return "-".join([item.nodeid.partition("::")[0].replace("/", "."), *places])
