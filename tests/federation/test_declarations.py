"""The declaration of every message: nothing else travels, and each entry has a class."""

import json
import re

import pytest
from support.project import PROJECT

from dance_flwr.errors import UserError
from dance_flwr.federation.declarations import declared, disclosure, entries
from dance_flwr.federation.flower import SecAggKey
from dance_flwr.federation.wire import keys
from dance_flwr.federation.wire.rules import ANY, Disclosure, Kind
from docs.tables.what_leaves import classes

GOLDEN = json.loads((PROJECT / "tests" / "golden" / "schema.json").read_text("utf-8"))
LINES = {
    line.removeprefix("+ ")
    for lines in GOLDEN["schema"]["messages"].values()
    for line in lines
    if not re.match(r"- |(\+ )?model/", line)
}
WAYS = {"up": keys.UP, "down": keys.DOWN}


def test_every_record_and_entry_of_a_run_is_declared_with_its_type():
    """By the golden schema, which the messages of whole runs must equal."""
    forms = declared()
    for line in LINES:
        place, key, found = re.fullmatch(r"([^/]+?)(?:/(.+))?: (.+)", line).groups()
        kind, *stage, way, name = place.split()
        record = forms[kind, "".join(stage), WAYS[way]][name]
        if key is None:
            assert found in (record.of.__name__, "the model"), line
        elif not isinstance(record.content, Disclosure):
            rule = record.content[key.replace("<n>", keys.NODE)].rule
            # A list without entries is of no type.
            assert rule is ANY or found in (rule.type, rule.type.partition(" ")[0]), line


def test_what_a_client_says_of_itself_has_a_rule_and_the_same_words_in_every_message():
    words = {}
    for (_, stage, way), record, key, entry in entries():
        tensors = key == "*"
        assert way == keys.DOWN or tensors or entry.rule is not ANY, (stage, record, key)
        assert words.setdefault((way, record, key), entry.told) == entry.told


def test_the_list_of_all_entries_names_their_classes():
    rows = classes().splitlines()
    assert len(rows) > 150
    withheld = "; ".join(
        f"withheld under privacy.dp = {dp}" for dp in ("central", "distributed", "local")
    )
    assert f"| train | to the server | metrics | loss | plain number; {withheld} |" in rows
    assert f"| weigh | to the server | metrics | nodes | masked; {withheld} |" in rows
    noisy = "plain number; noisy under privacy.dp = distributed; noisy under privacy.dp = local"
    assert f"| train | to the server | arrays | * | {noisy} |" in rows
    assert {kind for kind in Kind if any(kind in row for row in rows)} == set(Kind)


@pytest.mark.parametrize("dp", ["central", "distributed", "local"])
def test_under_noise_a_client_sends_no_plain_number(dp):
    """But what the server itself adds noise to, which `central` trusts with it."""
    plain = {
        (record, key)
        for (_, _, way), record, key, entry in entries()
        if way == keys.UP and dict(entry.told.under).get(dp, entry.told.kind) == Kind.PLAIN
    }
    trusted = {(keys.ARRAYS, "*"), (keys.SCALES, "*"), (keys.METRICS, keys.UNCLIPPED)}
    assert plain == (trusted if dp == "central" else set())


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("extras", "texts"),
        (keys.METRICS, "seconds-of-something"),
        (keys.METRICS, "loss-per-node"),
        (keys.CONFIG, "run-of-somebody"),
    ],
)
def test_an_undeclared_key_is_refused(record, key):
    with pytest.raises(UserError, match=f"{key!r} of {record!r}"):
        disclosure(record, key)


def test_every_key_of_flowers_protocol_that_travels_is_declared():
    named = {value for name, value in vars(SecAggKey).items() if name.isupper()}
    known = {key for _, _, key, _ in entries()}
    assert named - known == {SecAggKey.PARAMETERS}  # of legacy messages; no app of ours has it
