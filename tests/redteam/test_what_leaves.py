"""The command that prints what leaves a client."""

import pytest
from support.graphs import SMALL

from dance_flwr.errors import UserError
from dance_flwr.federation.wire import keys
from docs.tables.what_leaves import main, table


def test_the_command_makes_both_runs_and_prints_the_table(tiny, capsys):
    settings = SMALL | {"data": str(tiny), "seed": 48}
    main([f"{key}={value}" for key, value in settings.items() if key != "rounds"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) > 10 and any("`loss`" in row and "the sum over" in row for row in rows)


def test_a_key_that_no_masked_message_has_leaves_nothing_and_an_unknown_one_is_refused(dance):
    unmasked = table(dance.messages, [])
    assert "| withheld |" not in unmasked and unmasked.count("| nothing |") > 8
    reply = dance.replies("train")[0]
    reply.content.metric_records[keys.METRICS]["difficulty"] = 0.5
    try:
        with pytest.raises(UserError, match="'difficulty'"):
            table(dance.messages, [])
    finally:
        del reply.content.metric_records[keys.METRICS]["difficulty"]
