"""Counts under masks: their sum is that of the counts, and no file says anything by itself."""

import json

import numpy as np
import pytest
from support.graphs import text_graph

from dance_flwr.data.graphs.folder import write_folder
from dance_flwr.data.stats import lines_of, stats_of, summed
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.masked_counts import create_key, masked, unmasked

CLASSES = ["astronomy", "cooking", "sailing"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three graphs, of which the second lacks two of the classes."""
    made = []
    for name, labels in (
        ("north", [0, 1, 2, -1]),
        ("south", [1, 1, 1, 1]),
        ("east", [2, 0, 0, -1]),
    ):
        texts = ["x" * 70 * (k + len(name)) for k in range(4)]
        edges = np.array([[0, 1], [0, 2]])
        graph = text_graph(name, [f"{name}{k}" for k in range(4)], texts, np.array(labels), edges)
        made.append(tmp_path_factory.mktemp("graphs") / name)
        write_folder(graph, made[-1])
    return made


@pytest.fixture
def sites(folders, tmp_path):
    """(counts, private key, public keys of the others) of each site."""
    names = [tmp_path / name for name in ("north", "south", "east")]
    public = [create_key(name) for name in names]
    return [
        (stats_of(folder), name, [other for other in public if other != mine])
        for folder, name, mine in zip(folders, names, public, strict=True)
    ]


def written(sites, tmp_path, classes=CLASSES):
    files = []
    for stats, key, others in sites:
        files.append(tmp_path / f"{key.name}.json")
        files[-1].write_text(json.dumps(masked(stats, key, others, classes)))
    return files


def test_the_sum_is_that_of_the_counts(sites, folders, tmp_path):
    files = written(sites, tmp_path)
    assert {s: +c for s, c in unmasked(files).items()} == {
        section: +counts for section, counts in summed(folders).items()
    }
    assert unmasked(files[::-1]) == unmasked(files)


def test_no_file_shows_a_count_not_even_an_absent_class(sites, tmp_path):
    first, again = (written(sites, tmp_path)[1].read_text() for _ in range(2))
    assert first == again, "the masks of the same keys, classes and sites"
    content = json.loads(first)
    values = [value for section in ("classes", "degrees") for value in content[section].values()]
    assert min(values) > 1000 and len(set(values)) == len(values)
    assert content["classes"].keys() == set(CLASSES)
    # Other keys, other masks: no value is that of before.
    for _, key, _ in sites:
        for file in (key, key.with_name(key.name + ".pub")):
            file.unlink()
        create_key(key)
    other = json.loads(written(sites, tmp_path)[1].read_text())
    assert not set(other["classes"].values()) & set(content["classes"].values())


def test_a_sum_without_a_site_is_refused_and_says_nothing(sites, tmp_path):
    files = written(sites, tmp_path)
    with pytest.raises(
        UserError, match="masked counts of all 3 sites, each once, found 2, none of"
    ):
        unmasked(files[:2])
    with pytest.raises(UserError, match="found 3, "):
        unmasked([files[0], files[1], files[1]])
    two = [json.loads(file.read_text())["classes"] for file in files[:2]]
    sums = [(two[0][name] + two[1][name]) % 2**32 for name in CLASSES]
    assert min(sums) > 1000, "the masks with the third site are left"


def test_masks_are_bound_to_sites_and_classes(sites, tmp_path):
    """A server that moves the sites to another group, or asks for other classes, gets no sum."""
    files = written(sites, tmp_path)
    stats, key, others = sites[2]
    files[2].write_text(json.dumps(masked(stats, key, others, [*CLASSES, "another"])))
    with pytest.raises(UserError, match=r"east\.json: expected the sites and the classes of"):
        unmasked(files)
    stranger = create_key(tmp_path / "stranger")
    files = written(sites, tmp_path)
    before = json.loads(files[0].read_text())["classes"]
    stats, key, others = sites[0]
    wider = masked(stats, key, [*others, stranger], CLASSES)["classes"]
    assert all(before[name] != wider[name] for name in CLASSES)


def test_too_few_sites_and_unknown_classes_are_refused(sites):
    stats, key, others = sites[0]
    for public in (others[:1], [], [others[0], others[0]]):
        with pytest.raises(UserError, match="public keys of at least 2 other sites, each once"):
            masked(stats, key, public, CLASSES)
    with pytest.raises(UserError, match="expected all that occur here, found none 'sailing'"):
        masked(stats, key, others, CLASSES[:2])


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
def test_a_damaged_key_is_one_line(sites, tmp_path, text):
    stats, key, others = sites[0]
    others[0].write_text(text)
    with pytest.raises(UserError, match="expected the public key of a site"):
        masked(stats, key, others, CLASSES)
    key.write_text(text)
    with pytest.raises(UserError, match="expected a key of `dance-flwr stats --new-key`"):
        masked(stats, key, others, CLASSES)


@pytest.mark.parametrize(
    "change",
    [{"sizes": {"nodes": -1}}, {"sizes": {"nodes": 2**32}}, {"public-keys": [1]}, {"more": {}}],
)
def test_a_file_that_holds_something_else_is_one_line(sites, tmp_path, change):
    files = written(sites, tmp_path)
    files[1].write_text(json.dumps(json.loads(files[1].read_text()) | change))
    with pytest.raises(UserError, match=r"south\.json: expected masked counts of a site, found"):
        unmasked(files)


def test_the_commands_of_three_sites(folders, tmp_path, cli):
    """Each writes a key and a masked file; the key is gone then, and anyone adds up."""
    names = ("north", "south", "east")
    for name in names:
        done = cli("stats", "--new-key", tmp_path / name)
        assert done.code == 0 and f"{name}.pub: give this file to every other site" in done.out
    assert (tmp_path / "north").stat().st_mode & 0o077 == 0
    assert "north: expected no file of this name" in str(
        cli("stats", "--new-key", tmp_path / "north").err
    )
    clear = tmp_path / "clear.json"
    for words in (("--public", tmp_path / "south.pub"), ("--classes", "astronomy")):
        assert "expected --mask KEY" in str(cli("stats", folders[0], *words, "--out", clear).err)
    assert not clear.exists()
    files = [tmp_path / f"{name}.json" for name in names]
    for name, folder, file in zip(names, folders, files, strict=True):
        public = [w for n in names if n != name for w in ("--public", tmp_path / f"{n}.pub")]
        words = ("--mask", tmp_path / name, *public, "--classes", ", ".join(CLASSES))
        assert "expected --out FILE.json" in str(cli("stats", folder, *words).err)
        assert cli("stats", folder, *words, "--out", file).code == 0
        assert not (tmp_path / name).exists()
    shown = cli("stats", *files).out.splitlines()
    assert shown[:2] == lines_of(summed(folders))[:2]
    mixed = cli("stats", files[0], folders[1])
    assert mixed.code == 2 and "expected counts that `dance-flwr stats --out` wrote" in str(
        mixed.err
    )
    assert "expected FOLDER or FILE.json, found none" in str(cli("stats").err)
