"""The configuration: one source of defaults, every mistake reported at once, files that parse."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.project import PROJECT

from dance_flwr.config.paths import shipped
from dance_flwr.config.text import all_tables, read_config, read_values, to_toml, toml_block
from dance_flwr.config.tree import defaults, flat_fields, flatten, parse, parse_stored
from dance_flwr.dance.config import DanceConfig
from dance_flwr.errors import ConfigError, UserError


def everything(config):
    """Every key of a configuration, those of other methods too."""
    sections = {section.name: vars(section) for section in config.sections}
    values = {
        key: sections[key.partition(".")[0]][key.partition(".")[2].replace("-", "_")]
        for key in flat_fields()
        if key.partition(".")[0] in sections
    }
    return {key: (flatten(config) | values)[key] for key in flat_fields()}


def flat(table, prefix=""):
    leaves = {}
    for key, value in table.items():
        leaves |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return leaves


def bounds(item):
    """The values just outside the range of a key."""
    steps = {"gt": 0, "ge": -1, "le": 1, "lt": 0}
    kind = type(item.default)
    return [kind(item.metadata[n] + step) for n, step in steps.items() if n in item.metadata]


def problems(values):
    with pytest.raises(ConfigError) as error:
        parse(values)
    assert "\n" not in str(error.value)
    return error.value.problems


def test_pyproject_repeats_the_defaults(alone):
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert toml_block() in text
    table = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    # Under `flwr run`, the number of clients is that of the SuperNodes.
    assert flat(table) == defaults() | {"clients": 0}
    assert parse(flat(table) | {"clients": 5}) == parse({})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rounds": st.integers(1, 10**6),
            "clients": st.integers(1, 1000),
            "data": st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=20),
            "learning-rate": st.floats(1e-9, 1e9),
            "dropout": st.floats(0, 1, exclude_max=True),
            "strategy": st.sampled_from(["fedavg", "fedadam"]),
            "client-fraction": st.floats(0, 1, exclude_min=True),
            "condensation-ratio": st.floats(0, 1, exclude_min=True),
            "dance.label-evidence": st.booleans(),
            "dance.hop2-budget": st.integers(0, 8),
            "dance.views": st.sampled_from(["fused", "plain", "core+fused"]),
        },
    )
)
def test_flatten_and_toml_round_trip(values):
    config = parse(values)
    assert parse(flatten(config)) == config
    assert parse(flat(tomllib.loads(to_toml(config)))) == config
    assert values.items() <= flatten(config).items()


def test_keys_of_other_methods_do_not_travel():
    config = parse({"method": "ditto", "ditto.mu": 0.2, "dance.mix": 0.3})
    sections = {key.partition(".")[0] for key in flatten(config) if "." in key}
    assert sections == {"privacy", "ditto", "sampling"}
    assert everything(config)["dance.mix"] == 0.3, "which another method of a comparison may read"
    assert parse(flatten(config)) == parse({"method": "ditto", "ditto.mu": 0.2})


def test_a_stored_configuration_may_hold_keys_of_other_methods():
    """Earlier releases stored those of every method, of which some are gone."""
    stored = flatten(parse({"method": "ditto", "ditto.mu": 0.2}))
    assert parse_stored(stored | {"condense.outer": 2}) == parse(stored)
    with pytest.raises(ConfigError, match=r"unknown key 'ditto\.gone'"):
        parse_stored(stored | {"ditto.gone": 1})


def test_every_mistake_is_reported_in_one_message():
    wrong = {
        **{
            "ruonds": 3,
            "dance.rato": 0.1,
            "rounds": "ten",
            "seed": -1,
            "dropout": 1.0,
            "method": "magic",
        },
        **{
            "condensation-ratio": 0,
            "dance.views": "all",
            "learning-rate": 0.0,
            "dance.label-evidence": 1,
        },
    }
    found = problems(wrong)
    assert len(found) == len(wrong)
    for key in wrong:
        assert (
            sum(problem.startswith((f"{key}: ", f"unknown key {key!r}: ")) for problem in found)
            == 1
        ), key


def test_nan_is_refused_in_every_number():
    for key in (key for key, item in flat_fields().items() if type(item.default) is float):
        assert key in problems({key: math.nan})[0]


@pytest.mark.parametrize("key", [key for key, item in flat_fields().items() if bounds(item)])
def test_a_value_beyond_a_bound_is_refused(key):
    for value in bounds(flat_fields()[key]):
        assert key in problems({key: value})[0]


def test_an_integer_is_a_float_but_a_bool_is_no_integer():
    alpha = DanceConfig.of(parse({"dance.alpha": 3})).alpha
    assert alpha == 3.0 and type(alpha) is float
    for key, value in {
        "rounds": True,
        "learning-rate": True,
        "seed": 1.0,
        "data": 3,
        "dance.label-evidence": 0,
    }.items():
        assert key in problems({key: value})[0]


def test_later_sources_win(tmp_path):
    for name, text in {
        "a.toml": "condensation-ratio = 0.2\nrounds = 2\nseed = 2\n[dance]\nmix = 0.3\n",
        "b.toml": "seed = 3\n",
    }.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / "a.toml", tmp_path / "b.toml"]
    config = read_config(
        files, ["condensation-ratio=0.3", "data=plain word", "rounds = 5"], {"rounds": 7}
    )
    assert config == replace(
        parse({}),
        rounds=7,
        seed=3,
        data="plain word",
        condensation_ratio=0.3,
        sections=parse({"dance.mix": 0.3}).sections,
    )


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "configs").rglob("*.toml")), ids=lambda path: path.stem
)
def test_shipped_config_parses(path):
    declared = flat(tomllib.loads(path.read_text(encoding="utf-8")))
    assert declared and declared.items() <= everything(read_config([path], [], {})).items()


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("x=3", 3),
        ("x = 0.5", 0.5),
        ("x=true", True),
        ("x='3'", "3"),
        ("x=word", "word"),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ("x=2024-01-01", "2024-01-01"),
        ("x=[1, 2]", "[1, 2]"),
        ("x=3\nseed = 4", "3\nseed = 4"),
    ],
)
def test_a_pair_is_read_as_toml_or_as_text(pair, value):
    read = read_values([], [pair])
    assert read == {"x": value} and type(read["x"]) is type(value)


def between(path, mark):
    text = (PROJECT / path).read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0].strip()


def test_the_page_of_keys_is_made_from_the_keys(alone):
    assert between("docs/configuration.md", "keys") == all_tables()


def test_the_file_that_the_readme_shows_is_accepted(tmp_path):
    block = between("README.md", "configuration").removeprefix("```toml").removesuffix("```")
    (path := tmp_path / "mine.toml").write_text(block)
    config = read_config([path], [], {})
    assert config.data == "path/to/folder" and config.privacy.secure_aggregation
    assert DanceConfig.of(config).chunk_budget == 8


OPTIONS = {"resume", "overwrite"}  # of `dance-flwr run`


def explained(tables):
    """The keys of tables in Markdown, each of which has a meaning."""
    rows = [line.strip("| ").split(" | ") for line in tables.splitlines() if line.startswith("| `")]
    assert all(len(row) in (2, 4) and len(row[-1]) > 5 for row in rows)
    return [row[0].strip("`").partition("=")[0] for row in rows]


def test_every_key_is_explained_once():
    keys = explained(all_tables())
    assert len(keys) == len(set(keys))
    assert {*keys} == {*flat_fields()} - OPTIONS
    sections = [key for key in flat_fields() if "." in key and not key.startswith("privacy.")]
    assert keys[-len(sections) :] == sections


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("probe", "probe", "labels")),
        ({"method": "fedavg-full"}, ("attention", "none", "none")),
        ({"method": "fedavg-full", "edge-gates": "agreement"}, ("attention", "agreement", "none")),
        ({"text-pooling": "attention"}, ("attention", "probe", "labels")),
        ({"paper": True}, ("attention", "none", "none")),
    ],
)
def test_auto_stands_for_what_the_method_prefers(values, expected):
    config = parse(values)
    assert (config.text_pooling, config.edge_gates, config.class_prior) == expected
    assert parse(flatten(config)) == config


def test_a_shipped_file_is_found_by_its_name_unless_the_folder_has_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = Path("configs/cora.toml")
    assert shipped(named).read_bytes() == (PROJECT / named).read_bytes()
    assert shipped(Path("README.md")) == Path("README.md")  # of the reader, there or not
    assert shipped(Path("configs/none.toml")) == Path("configs/none.toml")
    named.parent.mkdir()
    named.write_text("rounds = 7")
    assert read_values([named], [])["rounds"] == 7


@pytest.mark.parametrize("mark", "[9")
def test_a_hostile_value_is_refused_in_one_line(tmp_path, mark):
    value = mark * 100_000
    (tmp_path / "a.toml").write_text(f"rounds = {value}")
    with pytest.raises(UserError, match="expected valid TOML, found"):
        read_values([tmp_path / "a.toml"], [])
    assert read_values([], [f"rounds={value}"]) == {"rounds": value}


def test_of_a_thousand_mistakes_the_first_are_named():
    with pytest.raises(ConfigError) as refused:
        parse({f"k{number}": 1 for number in range(1000)})
    assert len(str(refused.value)) < 5000 and str(refused.value).endswith("; and 960 more")
