"""The audit page as a file: what it chooses, holds and says, and to whom it may be shown."""

import re
import shutil
import stat
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from dance_flwr.api.bundle import export
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import write_card
from dance_flwr.errors import UserError
from dance_flwr.evidence.leave_out import leave_out
from dance_flwr.evidence.pack import Packs
from dance_flwr.pages import audit
from dance_flwr.pages.audit import NodeSigns, open_run
from dance_flwr.pages.audit_pack import (
    PARTS_OF_ONE,
    Reliability,
    answer,
    pack_digests,
    share,
    signed,
    span_sha256,
    units,
    unseen,
)
from dance_flwr.pages.document import unpacked
from dance_flwr.seeding import generator


def blocks_of(path):
    html = path.read_bytes().decode()
    found = re.findall(r'<script type="application/gzip" id="data-([^"]+)">([^<]*)</script>', html)
    blocks = {}
    for name, block in found:
        content = unpacked(block)
        if name.startswith(("pack-", "text-")):  # `in_blocks`
            blocks |= {f"{name[:4]}-{number}": one for number, one in content.items()}
        else:
            blocks[name] = content
    return blocks


@pytest.fixture(scope="module")
def page(dance, tmp_path_factory):
    """The page of client 1 of a run: its path, its blocks, and what was said."""
    said, out = [], tmp_path_factory.mktemp("pages") / "audit.html"
    with open_run(dance.folder, 1, None, said.append) as subject:
        audit.write_page(subject, out, [], 8, said.append)
    return SimpleNamespace(path=out, blocks=blocks_of(out), said=said)


def test_a_page_is_its_owners_and_says_what_it_holds(page):
    assert stat.S_IMODE(page.path.stat().st_mode) == 0o600
    html = page.path.read_text("utf-8")
    assert "This file contains source texts of client 1" in html
    assert "evidence of 8" in page.said[-1] and "source texts of client 1" in page.said[-1]


def test_the_head_names_model_code_privacy_and_verification(page, dance):
    html = page.path.read_text("utf-8")
    for fact in ("model_fingerprint", "provenance", "run"):
        assert str(dance.result[fact]) in html
    assert "No differential privacy: " in html
    assert re.search(
        r"✓ unchanged since training.*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, in \d+\.\d s",
        html,
        re.DOTALL,
    )
    assert "evidence verified" in html


def test_the_table_has_every_node_most_worth_a_look_first(page, dance):
    index, data = page.blocks["index"], dance.data(1)
    assert sorted(index["ids"]) == sorted(data.ids())
    assert index["pack"] == [*range(8), *[-1] * (data.num_nodes - 8)]
    assert [index["label"][i] for i in range(data.num_nodes)] == [
        int(data.labels[node]) for node in index["node"]
    ]
    signs = [
        (label >= 0 and label != predicted) + disagree + (margin < index["lowMargin"])
        for label, predicted, disagree, margin in zip(
            *(index[name] for name in ("label", "predicted", "disagree", "margin")), strict=True
        )
    ]
    assert signs == sorted(signs, reverse=True)


def test_packs_are_those_that_the_run_stored(page, dance):
    stored, index = Packs.load(dance.store(1).final_path), page.blocks["index"]
    seen = 0
    for place, node in enumerate(index["node"][:8]):
        facts = page.blocks[f"pack-{place}"]
        if (row := stored.row_of(node)) is None:
            continue
        seen += 1
        own = slice(stored.chunk_ptr[row], stored.chunk_ptr[row + 1])
        spans = sorted(
            (s["rank"], s["importance"], s["sha256"]) for a in facts["articles"] for s in a["spans"]
        )
        assert spans == [
            (rank, f"{weight:.3f}", digest.tobytes().hex())
            for rank, (weight, digest) in enumerate(
                zip(stored.chunk_weights[own], stored.chunk_sha256[own], strict=True), 1
            )
        ]
    with open_run(dance.folder, 1, None, lambda line: None) as subject:
        packs, kept = audit._packs(subject, np.array(index["node"][:8]))
    assert kept == seen
    assert pack_digests(packs, dance.data(1).ids(), index["classes"]) == index["digests"]


def test_marks_are_effects_of_leaving_out(page, dance):
    nodes = page.blocks["index"]["node"][:8]
    with open_run(dance.folder, 1, None, lambda line: None) as subject:
        packs, _ = audit._packs(subject, np.array(nodes))
        draws = generator(subject.client.config.seed, "page", client=1)
        effects = leave_out(subject.explainer, packs, 3, draws, 10**9)
    for row in range(8):
        facts = page.blocks[f"pack-{row}"]
        spans = sorted((s for a in facts["articles"] for s in a["spans"]), key=lambda s: s["rank"])
        values = effects.chunks[packs.chunks_of(row)]
        assert [span["effect"] for span in spans] == [signed(value) for value in values]
        kinds = ["none" if abs(v) < 0.05 else "for" if v > 0 else "against" for v in values]
        assert [span["kind"] for span in spans] == kinds
        said = facts["answer"]["control"]
        assert f"Without the marked text: {share(effects.before[row])} → " in said
        assert said.count(share(effects.without[row])) >= 1


@pytest.fixture
def one_answer():
    """A pack of one node, of class 0 before class 1, and its effects, to be altered."""
    packs = SimpleNamespace(
        predicted=np.array([0]),
        rival=np.array([1]),
        decisive=np.array([[0.41, 0.38, 0.21]]),
        stages=("plain", "fused", "deployed"),
        probs=np.array([[[0.5, 0.3, 0.2]], [[0.5, 0.4, 0.1]], [[0.41, 0.38, 0.21]]]),
        chunk_ptr=np.array([0, 2]),
    )
    effects = SimpleNamespace(
        done=np.array([True]),
        before=np.array([0.41]),
        without=np.array([0.30]),
        control=np.array([0.40]),
    )
    return packs, effects


def said_of(one_answer, label=-1):
    return answer(*one_answer, 0, ["CARDIOLOGY", "ONCOLOGY", "SURGERY"], label)


def test_one_sentence_says_what_the_model_says(one_answer):
    said = said_of(one_answer)
    assert said["says"] == "The model says CARDIOLOGY, 41 %, barely before ONCOLOGY, 38 %."
    assert said["label"] == "No label is known." and not said["wrong"]
    assert said_of(one_answer, 0)["label"] == "The label is the same."
    assert said_of(one_answer, 2)["label"] == "The label is another class, SURGERY."
    assert said_of(one_answer, 2)["wrong"] and not said_of(one_answer, 0)["wrong"]
    packs = one_answer[0]
    packs.decisive = np.array([[0.999, 0.001, 0.0]])
    assert said_of(one_answer)["says"].endswith("over 99 %, far before ONCOLOGY, under 1 %.")
    packs.decisive = np.array([[0.6, 0.3, 0.1]])
    assert said_of(one_answer)["says"].endswith("60 %, before ONCOLOGY, 30 %.")


def test_advice_is_how_often_such_answers_were_right():
    confidence = np.array([0.55] * 30 + [0.95] * 40 + [0.8] * 19, np.float32)
    right = np.array([True] * 18 + [False] * 12 + [True] * 38 + [False] * 2 + [True] * 19)
    of = Reliability.of(confidence, right)
    assert of.advice(0.6, False) == (
        "Weak: 60 % of 30 validation nodes with 50 to 70 % were answered rightly. "
        "Do not rely on this answer alone."
    )
    assert of.advice(0.9, False).startswith("Strong: 95 % of 40 validation nodes with 90 to 100 %")
    assert of.advice(0.95, True).endswith(
        "rightly, and the readings disagree. Do not rely on this answer alone."
    )
    assert of.advice(0.7, False).startswith("Not known: only 19 validation nodes with 70 to 90 %")
    assert of.advice(1.0, False).startswith("Strong")
    few = Reliability.of(confidence[:1], right[:1])
    assert few.advice(0.6, False).startswith("Not known: only 1 validation node with")
    assert few.advice(0.9, False).startswith("Not known: no validation nodes with")


def test_the_account_on_the_page_adds_up_to_the_answer(page, dance):
    classes = page.blocks["index"]["classes"]
    for place in range(8):
        pack = page.blocks[f"pack-{place}"]
        facts = pack["account"]
        total = np.sum([step["adds"] for step in facts["steps"]], axis=0) / PARTS_OF_ONE
        assert sorted([facts["best"], *facts["rivals"]]) == list(range(len(classes)))
        assert all(total[facts["best"]] >= total[k] for k in facts["rivals"])
        probs = np.exp(total - total.max())
        for p, said in zip(probs / probs.sum(), facts["probs"], strict=True):
            assert said in {share(p - 1e-3), share(p + 1e-3)}
        articles = {one["number"] for one in pack["articles"]}
        assert {step["text"] for step in facts["steps"] if step["text"]} == articles


def test_nodes_may_be_named(dance, tmp_path):
    ids, said = dance.data(1).ids(), []
    with open_run(dance.folder, 1, None, said.append) as subject:
        audit.write_page(
            subject, tmp_path / "a.html", [f"{ids[3]},{ids[7]}", ids[2]], 1, said.append
        )
    index = blocks_of(tmp_path / "a.html")["index"]
    assert len(index["digests"]) == 3
    assert {index["node"][index["pack"].index(k)]: k for k in range(3)} == {3: 0, 7: 1, 2: 2}


def test_an_unknown_node_is_refused_before_minutes_are_spent(dance, tmp_path, cli):
    done = cli("evidence", "page", dance.folder, "--nodes", "nobody", "--out", tmp_path / "a.html")
    assert done.code == 2 and len(done.err) == 1 and "nobody" in done.err[0]


def test_what_is_worth_a_look():
    probs = np.array([[0.9, 0.1], [0.55, 0.45], [0.8, 0.2], [0.6, 0.4], [0.2, 0.8]], np.float32)
    plain = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.2, 0.8]], np.float32)
    labels = np.array([0, 1, 1, 0, -1])
    seen = NodeSigns.of({"plain": plain, "deployed": probs}, labels)
    assert seen.wrong.tolist() == [False, True, True, False, False]
    assert seen.disagree.tolist() == [False, False, True, False, False]
    assert seen.headline() == (
        "2 of 5 predictions need a look: 2 with another label, 1 with readings that disagree, "
        "1 barely decided"
    )
    # Wrong and unsure before wrong and disagreeing, as its margin is smaller.
    assert seen.order().tolist() == [1, 2, 3, 4, 0]


def test_a_page_that_did_not_verify_says_so(dance, tmp_path):
    run, partition = dance.copied(tmp_path)
    path = partition / "client-1" / "nodes.parquet"
    content = pq.read_table(path).to_pydict()
    node = int(Packs.load(dance.store(1).final_path).nodes[0])
    content["text"][node] = content["text"][node].replace(" ", "_", 1)
    pq.write_table(replaced(path, content), path)
    write_card(path.parent, read_card(path.parent))  # by someone who renews the digests as well
    said, out = [], tmp_path / "a.html"
    with (
        pytest.raises(UserError, match=r"not verified: .*expected"),
        open_run(run, 1, None, said.append) as subject,
    ):
        audit.write_page(subject, out, [dance.data(1).ids()[node]], 5, said.append)
    html = out.read_text("utf-8")
    assert "✗ CHANGED since training" in html and "✓ unchanged" not in html
    assert any(
        not span["same"] for one in blocks_of(out)["pack-0"]["articles"] for span in one["spans"]
    )


def replaced(path, content):
    import pyarrow as pa

    return pa.table(content, schema=pq.read_schema(path))


def test_a_bundle_shows_nodes_that_no_client_saw(dance, tmp_path, cli):
    bundle, data = export(dance.folder, tmp_path / "bundle"), tmp_path / "site"
    data.mkdir()
    source = dance.partition / "client-2"
    table = pq.read_table(source / "nodes.parquet").select(["id", "text"])
    pq.write_table(table, data / "nodes.parquet")
    shutil.copyfile(source / "edges.parquet", data / "edges.parquet")
    done = cli(
        *("evidence", "page", bundle.folder, "--data", data, "--out", tmp_path / "b.html"),
        *("--max-nodes", 3),
    )
    assert done.code == 0, done.err
    index = blocks_of(tmp_path / "b.html")["index"]
    assert set(index["label"]) == {-1} and len(index["digests"]) == 3
    assert "No label is known" not in done.out
    assert bundle.model_id in (tmp_path / "b.html").read_text("utf-8")


def test_by_default_it_lies_where_the_run_is_kept_at_the_client(dance, tmp_path, cli):
    shutil.copytree(dance.partition / "client-1", tmp_path / "client-1")
    words = ("evidence", "page", dance.folder, "--client-folder", tmp_path / "client-1")
    done = cli(*words, "--max-nodes", 2)
    assert done.code == 0, done.err
    path = tmp_path / "client-1" / "runs" / dance.result["run"] / "audit.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cli(*words, "--max-nodes", 1).code == 0  # the seal is not broken


def test_offsets_count_what_a_browser_counts():
    text = "a\U0001f600\ud83d\ude00e\u0301\U00010348z"  # one pair, then two halves side by side
    assert len(text) == 8
    assert [units(text, place) for place in range(9)] == [0, 1, 3, 4, 5, 6, 7, 9, 10]
    assert span_sha256("\ud800", 0, 1) == sha256(b"\xed\xa0\x80").hexdigest()


def test_characters_that_do_not_show_are_named():
    assert unseen("a\tb\n") == ""
    assert unseen("a\u202eb\x00\x00") == "U+0000: 2, U+202E: 1"


def test_texts_are_in_the_page_once_and_whole(page, dance):
    texts, ids = dance.data(1).texts(), dance.data(1).ids()
    articles = [one for place in range(8) for one in page.blocks[f"pack-{place}"]["articles"]]
    assert {one["name"] for one in articles} == {ids[one["node"]] for one in articles}
    shown = {name: text for name, text in page.blocks.items() if name.startswith("text-")}
    assert shown == {f"text-{one['node']}": texts[one["node"]] for one in articles}


def test_one_line_of_control(one_answer):
    packs, effects = one_answer
    line = "Without the marked text: 41 % → 30 %; without as much other text: 41 % → 40 %."
    assert said_of(one_answer)["control"] == line
    effects.control[:] = 0.55
    assert said_of(one_answer)["control"].endswith("makes no more difference than other text.")
    effects.control[:] = np.nan
    assert said_of(one_answer)["control"].endswith("not as much other text to compare with.")
    packs.stages = ("fused", "deployed", "smoothed")
    assert said_of(one_answer)["control"].startswith("Before smoothing and personal models, with")
    effects.done[:] = False
    assert "was not computed" in said_of(one_answer)["control"]
    packs.chunk_ptr = np.array([0, 0])
    assert said_of(one_answer)["control"].startswith("No text is marked")
