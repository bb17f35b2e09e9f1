"""Verdicts of several reviewers: agreement by hand, and the nodes on which they differ."""

import json

from dance_flwr.data.imports.loading import load_graph
from dance_flwr.evidence.review import labels_of


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


def test_reviewers_are_compared(tmp_path):
    anna = exported(tmp_path / "anna.json", "Anna", n1="right", n2="B", n3="right", n5="B")
    ben = exported(tmp_path / "ben.json", "", n1="right", n2="right", n4="cannot tell", n5="C")
    lines = []
    assert labels_of([anna, ben], lines.append) == {"n1": "A", "n3": "A"}
    assert lines[0].endswith("Anna 4, " + f"{ben} 4; 3 nodes by all of them")
    # Of A, B, B and A, A, C one is equal: p_o = 1/3, p_e = 1/3 * 2/3.
    assert lines[1].startswith("agreement   0.333 of pairs of verdicts; Cohen's kappa")
    assert lines[1].endswith(f" {(1 / 3 - 2 / 9) / (1 - 2 / 9):.3f}")
    assert lines[2] == "discuss     2 nodes with different verdicts"
    assert lines[3] == "  n2, model says A"
    assert lines[4].startswith("    Anna: wrong, it is B, about n2") and "\x1b" not in lines[4]
    assert lines[5] == f"    {ben}: right"
    # Both say wrong, but not the same class.
    assert lines[6] == "  n5, model says A" and lines[8].startswith(f"    {ben}: wrong, it is C")
    same = exported(tmp_path / "same.json", "Eve", n1="right")
    labels_of([anna, same], lines.append)
    assert lines[-3].endswith("not defined, as all verdicts are the same")


def test_verdicts_become_labels(tmp_path, cli, monkeypatch):
    monkeypatch.setenv("DANCE_FLWR_HOME", str(tmp_path / "root"))
    (tmp_path / "nodes.csv").write_text(
        "id,text,label\nn1,a,A\nn2,b,A\nn3,c,\nn4,d,B\nn5,e,C\nn6,f,C\n"
    )
    (tmp_path / "edges.csv").write_text("source,target\nn1,n2\n")
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv")
    anna = exported(tmp_path / "anna.json", "Anna", n1="right", n2="B", n3="right", n5="B", n6="B")
    ben = exported(tmp_path / "ben.json", "Ben", n2="B", n4="cannot tell", n5="C", n6="cannot tell")
    taken = ("--labels-from", anna, "--labels-from", ben)
    done = cli("data", "import", *files, "--name", "g", *taken)
    assert done.code == 0, done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    said = "verdicts on 6 nodes: 3 with a class, 1 without, 2 on which reviewers differ"
    assert said in lines
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
