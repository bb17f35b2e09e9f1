"""Verdicts of several reviewers: agreement by hand, and the nodes on which they differ."""

import json

import numpy as np
import pytest

from dance_flwr.data.imports.loading import load_graph
from dance_flwr.evidence.review import agreement_of


def test_agreement_and_cohens_kappa_of_two_by_hand():
    """Of 10 nodes 8 are equal: p_o = 0.8, p_e = 0.6 * 0.6 + 0.4 * 0.4 = 0.52."""
    chosen = np.array([[0, 0]] * 5 + [[1, 1]] * 3 + [[0, 1], [1, 0]])
    agreement, name, kappa = agreement_of(chosen)
    assert (agreement, name) == (pytest.approx(0.8), "Cohen's")
    assert kappa == pytest.approx((0.8 - 0.52) / (1 - 0.52))


def test_fleiss_kappa_of_three_by_hand():
    """Two nodes: all agree, and 2 of 3: P = (1 + 1/3) / 2; shares 5/6 and 1/6."""
    agreement, name, kappa = agreement_of(np.array([[0, 0, 0], [0, 0, 1]]))
    assert (agreement, name) == (pytest.approx(2 / 3), "Fleiss'")
    by_chance = 25 / 36 + 1 / 36
    assert kappa == pytest.approx((2 / 3 - by_chance) / (1 - by_chance))


def test_the_same_verdict_everywhere_has_no_kappa():
    for reviewers, name in ((2, "Cohen's"), (3, "Fleiss'")):
        agreement, named, kappa = agreement_of(np.zeros((4, reviewers), int))
        assert agreement == 1 and named == name and np.isnan(kappa)


def exported(path, reviewer, **verdicts):
    """Verdicts by node: "right", "cannot tell", or the class that is right instead."""
    entries = [
        {"node": node, "predicted": "A", "pack_sha256": f"{node}-sha"}
        | {"verdict": "wrong" if verdict.isupper() else verdict}
        | {"class": {"right": "A"}.get(verdict, verdict if verdict.isupper() else "")}
        | {"note": f"about {node}\x1b[31m" if verdict.isupper() else ""}
        for node, verdict in verdicts.items()
    ]
    path.write_text(json.dumps({"format": 2, "reviewer": reviewer, "verdicts": entries}))
    return path


def test_reviewers_are_merged(tmp_path, cli):
    anna = exported(tmp_path / "anna.json", "Anna", n1="right", n2="B", n3="right", n5="B")
    ben = exported(tmp_path / "ben.json", "", n1="right", n2="right", n4="cannot tell", n5="C")
    done = cli("review", "--merge", anna, ben)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].endswith("Anna 4, " + f"{ben} 4; 3 nodes by all of them")
    assert lines[1].startswith("agreement   0.333 of pairs of verdicts; Cohen's kappa")
    assert lines[2] == "discuss     2 nodes with different verdicts"
    assert lines[3] == "  n2, model says A"
    assert lines[4].startswith("    Anna: wrong, it is B, about n2") and "\x1b" not in done.out
    assert lines[5] == f"    {ben}: right"
    # Both say wrong, but not the same class.
    assert lines[6] == "  n5, model says A" and lines[8].startswith(f"    {ben}: wrong, it is C")


@pytest.mark.parametrize("content", ["{", "[]", '{"verdicts": [{"node": "a"}]}', None])
def test_other_files_are_refused_in_one_line(tmp_path, cli, content):
    anna, other = exported(tmp_path / "anna.json", "Anna", n1="right"), tmp_path / "other.json"
    if content is not None:
        other.write_text(content)
    done = cli("review", "--merge", anna, other)
    assert done.code == 2 and "other.json: expected verdicts that" in done.err[-1]
    found = "No such file or directory; name the file" if content is None else "found "
    assert found in done.err[-1] and "Errno" not in done.err[-1]
    exported(other, "Ben", n1="maybe")
    done = cli("review", "--merge", anna, other)
    assert done.code == 2 and "found 'maybe'" in done.err[-1]
    done = cli("review", "--merge", anna)
    assert done.code == 2 and "two reviewers, found 1 file" in done.err[-1]


def test_verdicts_become_labels(tmp_path, cli):
    (tmp_path / "nodes.csv").write_text(
        "id,text,label\nn1,a,A\nn2,b,A\nn3,c,\nn4,d,B\nn5,e,C\nn6,f,C\n"
    )
    (tmp_path / "edges.csv").write_text("source,target\nn1,n2\n")
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv", "--data-root", tmp_path / "root")
    anna = exported(tmp_path / "anna.json", "Anna", n1="right", n2="B", n3="right", n5="B", n6="B")
    ben = exported(tmp_path / "ben.json", "Ben", n2="B", n4="cannot tell", n5="C", n6="cannot tell")
    taken = ("--labels-from", anna, "--labels-from", ben)
    done = cli("data", "import", *files, "--name", "g", *taken)
    assert done.code == 0, done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    said = "verdicts on 6 nodes: 3 with a class, 1 without, 2 on which reviewers differ"
    assert lines[0] == said
    assert "by verdicts: 1 corrected, 1 added, 1 confirmed" in lines
    graph = load_graph("g", tmp_path / "root")
    names = [graph.class_names[k] for k in graph.labels.tolist()]
    assert dict(zip(graph.ids, names, strict=True)) == dict(
        n1="A", n2="B", n3="A", n4="B", n5="C", n6="C"
    )
    for of, what in ((dict(n9="right"), "id"), (dict(n1="Z"), "class"), ({"\ud800": "B"}, "")):
        wrong = exported(tmp_path / "wrong.json", "Eve", **of)
        done = cli("data", "import", *files, "--name", "h", "--labels-from", wrong)
        assert done.code == 2 and len(done.err) == 1
        assert f"expected the {what} of a node in" in done.err[0] or not what
        assert "surrogates not allowed" in done.err[0] or what
        assert not (tmp_path / "root" / "graphs" / "h").exists()
    # Without labels of its own, a graph takes whatever classes reviewers name.
    done = cli("data", "import", *files, "--name", "i", "--label", "none", "--labels-from", anna)
    assert done.code == 0 and load_graph("i", tmp_path / "root").class_names == ("A", "B")
