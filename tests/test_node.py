"""What a node has to trust: the files of the package that its process imports."""

from pathlib import Path

import pytest
from support.node import Node
from support.project import PROJECT

import client_app
from dance_flwr.config.plugins import METHODS, RIVALS

MOST_LINES = 14_904  # only lower it


@pytest.mark.long
def test_a_node_that_trains_under_masks_imports_few_lines(run, tmp_path):
    if others := {*METHODS} - {*METHODS.builtin, *RIVALS}:
        pytest.skip(f"a spec of another package may import more: {', '.join(others)}")
    node = Node(PROJECT, tmp_path)
    try:

        def app(message, context):
            theirs = context.node_config["partition-id"] == 0
            return (node if theirs else client_app.app)(message, context)

        run(app=app, rounds=1, method="dance", privacy_secure_aggregation=True)
    finally:
        node.close()
    lines = {name: len(Path(file).read_text().splitlines()) for name, file in node.modules.items()}
    assert "dance_flwr.federation.secagg.client" in lines and "dance_flwr.dance.training" in lines
    print(f"{len(lines)} files, {sum(lines.values())} lines")
    assert sum(lines.values()) <= MOST_LINES
