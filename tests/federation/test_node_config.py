"""The configuration in messages: read once for all messages of a run, refused as ever."""

from types import SimpleNamespace

import pytest

from dance_flwr.config.tree import flatten, parse
from dance_flwr.errors import ConfigError
from dance_flwr.federation.node_config import run_config_of


def of(values, **node):
    node = {name.replace("_", "-"): value for name, value in node.items()}
    return run_config_of(SimpleNamespace(run_config=values, node_config=node))


def test_messages_of_a_run_share_one_configuration_and_other_runs_have_their_own():
    values = flatten(parse({"rounds": 3}))
    assert of(dict(values)) is of(dict(reversed(values.items()))) == parse({"rounds": 3})
    assert of(values | {"rounds": 4}).rounds == 4


def test_a_value_of_the_wrong_type_is_refused_though_it_equals_a_valid_one():
    values = flatten(parse({"rounds": 1, "paper": True}))
    assert of(values).paper is True
    for wrong in ({"paper": 1}, {"rounds": True}):
        with pytest.raises(ConfigError, match="expected"):
            of(values | wrong)
        with pytest.raises(ConfigError, match="expected"):  # nor is a refusal forgotten
            of(values | wrong)


def test_a_node_counts_the_clients_by_its_own_configuration_where_the_run_does_not():
    open_ = flatten(parse({"rounds": 3})) | {"clients": 0}
    assert of(open_, num_partitions=7).clients == 7
    assert of(open_ | {"clients": 4}, num_partitions=7).clients == 4
