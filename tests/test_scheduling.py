"""That the workers of a run get the groups of `support.scheduling`, which nobody would miss: a run
without them makes every fixture of a module once per worker, and engines beside each other.
"""

import os

import pytest

pytestmark = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" not in os.environ, reason="all tests run in this process"
)


@pytest.fixture(scope="module")
def made_once():
    return object()


@pytest.mark.xdist_group("named")
def test_a_named_group_reaches_the_scheduler(request):
    assert request.node.nodeid.endswith("@named")


def test_a_fixture_of_a_module_is_a_group(request, made_once):
    assert request.node.nodeid.endswith("@tests.test_scheduling.py")


def test_a_test_that_shares_nothing_is_of_no_group(request):
    assert "@" not in request.node.nodeid
