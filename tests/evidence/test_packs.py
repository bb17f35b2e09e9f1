"""Evidence packs: within budgets, spans that slice exactly, and a verification that every
alteration fails.
"""

import re
import shutil
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from dance_flwr.dance.config import DanceConfig
from dance_flwr.dance.nodes import node_budget
from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import data_commitment, write_card
from dance_flwr.errors import UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.render import render
from dance_flwr.evidence.seal import seal
from dance_flwr.runs.evidence import show_evidence, verify_evidence
from dance_flwr.runs.result import read_result, write_result

CLIENTS = range(3)


def every_pack_file(finished):
    return [
        (client, Packs.load(path))
        for client in CLIENTS
        for path in finished.store(client).all_packs()
    ]


def rows(ptr, *arrays):
    return list(zip(*(np.split(array, ptr[1:-1]) for array in arrays), strict=True))


def test_packs_are_of_the_whole_core_and_within_the_budgets(dance):
    settings = DanceConfig.of(dance.config)
    for client, packs in every_pack_file(dance):
        assert len(packs.nodes) == node_budget(
            dance.data(client).num_nodes, dance.config.condensation_ratio
        )
        for hops, weights in rows(
            packs.neighbour_ptr, packs.neighbour_hops, packs.neighbour_weights
        ):
            counts = np.bincount(hops, minlength=3)
            assert (
                counts[0] == 1
                and counts[1] <= settings.hop1_budget
                and counts[2] <= settings.hop2_budget
            )
            for hop in np.unique(hops):
                assert weights[hops == hop].sum() == pytest.approx(1, abs=1e-5)
        for chunks, weights in rows(packs.chunk_ptr, packs.chunks, packs.chunk_weights):
            assert 1 <= len(chunks) <= settings.chunk_budget and len(set(chunks)) == len(chunks)
            assert weights.sum() == pytest.approx(1, abs=1e-5)
            assert (weights > 0).all() and (np.diff(weights) <= 0).all()


def test_spans_slice_exactly_to_the_chunks_of_gated_neighbours(dance):
    for client, packs in every_pack_file(dance):
        data = dance.data(client)
        texts = data.texts()
        for chunk, node, span, digest in zip(
            packs.chunks, packs.chunk_nodes, packs.chunk_spans, packs.chunk_sha256, strict=True
        ):
            start, end = span
            assert sha256(texts[node][start:end].encode()).digest() == digest.tobytes()
            assert data.bank.spans[chunk].tolist() == span.tolist()
            assert data.bank.ptr[node] <= chunk < data.bank.ptr[node + 1]
            assert texts[node][start:end] == texts[node][start:end].strip() != ""
        owners = [set(nodes) for (nodes,) in rows(packs.chunk_ptr, packs.chunk_nodes)]
        gated = [set(nodes) for (nodes,) in rows(packs.neighbour_ptr, packs.neighbours)]
        assert all(owner <= gate for owner, gate in zip(owners, gated, strict=True))


def bare(text):
    """The lines of source texts without the bar before them."""
    return re.sub(r"^\| ?", "", text, flags=re.MULTILINE)


def marks(text):
    return re.findall(r"⟦\[\d+\] ([\d.]+): (.*?)⟧", bare(text), re.DOTALL)


def test_show_marks_the_spans_of_the_stored_pack(dance):
    packs, data = Packs.load(dance.store(0).final_path), dance.data(0)
    row = len(packs.nodes) // 2
    text = show_evidence(dance.folder, 0, data.ids()[packs.nodes[row]], None)
    own = slice(packs.chunk_ptr[row], packs.chunk_ptr[row + 1])
    texts = data.texts()
    spans = zip(
        packs.chunk_nodes[own], packs.chunk_spans[own], packs.chunk_weights[own], strict=True
    )
    expected = sorted((f"{weight:.3f}", texts[node][a:b]) for node, (a, b), weight in spans)
    assert sorted(marks(text)) == expected
    assert data.ids()[packs.nodes[row]] in text and packs.model_id in text
    unmarked = re.sub(r"⟦\[\d+\] [\d.]+: |⟧", "", bare(text))
    assert all(
        texts[node] in unmarked
        for node in packs.neighbours[slice(*packs.neighbour_ptr[row : row + 2])]
    )


def test_show_explains_a_node_outside_the_core(dance):
    data, packs = dance.data(0), Packs.load(dance.store(0).final_path)
    outside = next(u for u in range(data.num_nodes) if packs.row_of(u) is None)
    text = show_evidence(dance.folder, 0, data.ids()[outside], None)
    assert data.ids()[outside] in text.splitlines()[0] and marks(text)
    assert sum(float(weight) for weight, _ in marks(text)) == pytest.approx(1, abs=0.01)


def test_the_answer_is_shown_before_its_readings_and_its_account(dance):
    packs, data = Packs.load(dance.store(0).final_path), dance.data(0)
    for row, best in enumerate(packs.predicted):
        text, names = render(data, packs, row), data.card.class_names
        shown = [f"answer      {names[best]} ({packs.decisive[row, best]:.3f})"]
        for stage in packs.views:
            probs = packs.probs[packs.stages.index(stage), row]
            shown.append(f": {names[probs.argmax()]} ({probs.max():.3f})")
        places = [text.index(part) for part in [*shown, "account "]]
        assert places == sorted(places)
        assert ("the readings disagree" in text) == packs.disagree[row]
        total, *steps = map(float, re.findall(r"(?<= )[+-]\d+\.\d\d(?=,|  )", text))
        odds = np.log(packs.decisive[row, best] / packs.decisive[row, packs.rival[row]])
        assert total == pytest.approx(odds, abs=0.01)
        assert sum(steps) == pytest.approx(total, abs=0.005 * (1 + len(steps)))


@dataclass
class Copy:
    """A copy of a run and of its partition that a test may alter."""

    run: Path
    partition: Path
    name: str

    @property
    def client(self) -> Path:
        return self.partition / "client-1"

    @property
    def evidence(self) -> Path:
        return self.client / "runs" / self.name / "evidence"

    def packs(self, stem="final") -> Packs:
        return Packs.load(self.evidence / f"{stem}.npz")

    def change(self, stem="final", **arrays):
        replace(self.packs(stem), **arrays).save(self.evidence / f"{stem}.npz")

    def forge_record(self):
        """Let card, seal and record of the run describe what is there now."""
        write_card(self.client, read_card(self.client))
        card, result = read_card(self.client), read_result(self.run)
        result["data_sha256"]["1"] = data_commitment(card)
        sealed = seal(RunFolder(self.client, self.name), card.salt)
        result["evidence_sha256"]["1"] = sealed
        write_result(self.run, result)

    def texts(self, edit):
        """Rewrite the node table with `edit(columns)`, a dict of lists."""
        table = pq.read_table(self.client / "nodes.parquet")
        columns = table.to_pydict()
        edit(columns)
        pq.write_table(pa.table(columns, schema=table.schema), self.client / "nodes.parquet")


@pytest.fixture
def copy(dance, tmp_path) -> Copy:
    return Copy(*dance.copied(tmp_path), dance.result["run"])


def bumped(array, index=0, by=1):
    changed = array.copy()
    changed[index] += by
    return changed


def put(text, at):
    """`text` with another character at one place."""
    return text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]


def edit_text(copy, node, at):
    copy.texts(lambda columns: columns["text"].__setitem__(node, put(columns["text"][node], at)))


def selected_span(copy):
    packs = copy.packs()
    edit_text(copy, packs.chunk_nodes[0], packs.chunk_spans[0, 0])


def unselected_span(copy):
    from torch import device

    from dance_flwr.client_data.client_data import ClientData

    bank = ClientData(copy.client, device("cpu")).bank
    used = {chunk for path in copy.evidence.glob("*.npz") for chunk in Packs.load(path).chunks}
    chunk = next(number for number in range(len(bank.spans)) if number not in used)
    node = int(np.searchsorted(bank.ptr, chunk, side="right")) - 1
    edit_text(copy, node, bank.spans[chunk, 1] - 1)


def swapped_ids(copy):
    def edit(columns):
        columns["id"][:2] = columns["id"][1::-1]

    copy.texts(edit)


def altered_model(copy):
    state = load_file(copy.run / "model.safetensors")
    state["head_fused.bias"][0] += 1e-3
    save_file(state, copy.run / "model.safetensors")


def forged_span(copy):
    """Point a span elsewhere and give it the digest of what stands there."""
    packs = copy.packs()
    node, (start, end) = packs.chunk_nodes[0], packs.chunk_spans[0]
    text = pq.read_table(copy.client / "nodes.parquet")["text"].to_pylist()[node]
    digests, spans = packs.chunk_sha256.copy(), packs.chunk_spans.copy()
    spans[0] = start, end - 1
    digests[0] = np.frombuffer(sha256(text[start : end - 1].encode()).digest(), np.uint8)
    copy.change(chunk_spans=spans, chunk_sha256=digests)


def neighbour_hop(copy):
    changed("neighbour_hops", int(np.flatnonzero(copy.packs().neighbour_hops == 1)[0]))(copy)


def labelled_neighbour(packs):
    return int(np.flatnonzero(packs.neighbour_labels >= 0)[0])


def neighbour_label(copy):
    labels, at = copy.packs().neighbour_labels.copy(), labelled_neighbour(copy.packs())
    labels[at] = (labels[at] + 1) % 3
    copy.change(neighbour_labels=labels)


def neighbour_effect(copy):
    changed("neighbour_label_logits", (labelled_neighbour(copy.packs()), 0), 0.5)(copy)


def changed(field, index=0, by=1, stem="final"):
    """Add to one number of a field of stored packs."""
    return lambda c: c.change(stem, **{field: bumped(getattr(c.packs(stem), field), index, by)})


def cancelling(c):
    """What a neighbour's text and what a chunk added, in opposite directions."""
    changed("neighbour_text_logits", (0, 0), 0.5)(c)
    changed("chunk_logits", (0, 0), -0.5)(c)


def cancelling_parts(c):
    changed("parts", (0, 2, 0), 0.5)(c)
    changed("parts", (0, 3, 0), -0.5)(c)


ALTERATIONS = {
    "a character of a selected span": selected_span,
    "a character of a span that no pack selected": unselected_span,
    "a chunk weight": changed("chunk_weights", by=-0.01),
    "a chunk weight that is no number": changed("chunk_weights", by=np.nan),
    "a gate weight": changed("neighbour_weights", 1, -0.01),
    "the start of a span": changed("chunk_spans", (0, 0)),
    "the end of a span": changed("chunk_spans", (0, 1), -1),
    "a span of an earlier round": changed("chunk_spans", (0, 0), stem="round-00001"),
    "a span and its digest": forged_span,
    "the node of a pack": lambda c: c.change(nodes=c.packs().nodes[::-1].copy()),
    "a predicted class": lambda c: c.change(probs=np.roll(c.packs().probs, 1, axis=2)),
    "a probability": changed("probs", (0, 0, 0), -0.2),
    "what a neighbour's text added": changed("neighbour_text_logits", (0, 0), 0.5),
    "what a chunk added": changed("chunk_logits", (0, 0), 0.5),
    "two additions that cancel": cancelling,
    "the temperature of the last stage": lambda c: c.change(temperature=2.0),
    "a contribution": changed("parts", (0, 1, 0), 0.5),
    "two contributions that cancel": cancelling_parts,
    "a contribution of an earlier round": changed("parts", (0, 1, 0), 0.5, "round-00001"),
    "the label of a neighbour": neighbour_label,
    "the effect of a label": neighbour_effect,
    "the views that are deployed": lambda c: c.change(views=("fused",)),
    "a stage that is left out": lambda c: c.change(
        stages=c.packs().stages[1:], probs=c.packs().probs[1:]
    ),
    "the hop of a neighbour": neighbour_hop,
    "the model that the final packs name": lambda c: c.change(model_id="0" * 16),
    "one number of the saved model": altered_model,
    "the order of the node ids": swapped_ids,
}


def test_verify_passes_on_a_fresh_run_and_says_what_it_read(dance, cli, copy):
    for run in (dance.folder, copy.run):
        done = cli("evidence", "verify", run)
        assert done.code == 0 and done.err == []
        *clients, last = done.out.splitlines()
        assert last == "evidence verified" and [line.split(":")[0] for line in clients] == [
            f"client {number}" for number in CLIENTS for _ in ("files", "embeddings", "packs")
        ]
    packs = [copy.packs(path.stem) for path in copy.evidence.glob("*.npz")]
    assert (
        f"{sum(len(p.chunks) for p in packs)} marked passages read back from the source texts; of "
        f"{sum(len(p.nodes) for p in packs)} pieces of evidence" in clients[5]
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"dance_core_refresh_every": 0, "dance_text_refresh_every": 0},
        {"backbone": "sage", "dance_views": "plain", "dance_text_refresh_every": 2},
        {"dance_hop1_budget": 0, "dance_hop2_budget": 0, "dance_evidence_keep": "final"},
    ],
)
def test_verify_passes_whatever_the_settings(run, keys):
    said = []
    verify_evidence(run(rounds=2, **keys).folder, None, said.append)
    assert said[-1] == "evidence verified"
    assert not any(" 0 marked" in line or "of 0 pieces" in line for line in said)


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_verify_fails_on_a_single_alteration(copy, alter):
    """Also where someone forged the record of the run: the links below it hold by themselves."""
    alter(copy)
    for forge in (lambda: None, copy.forge_record):
        forge()
        with pytest.raises(UserError) as error:
            verify_evidence(copy.run, copy.client, lambda line: None)
        assert "\n" not in str(error.value)


def unsealed(copy, stem, edit):
    """Alter packs of client 1 that the record of the run did not seal."""
    edit(copy.packs(stem)).save(copy.evidence / f"{stem}.npz")
    result = read_result(copy.run)
    del result["evidence_sha256"]["1"]
    write_result(copy.run, result)


def refusal(copy, client_folder=None):
    with pytest.raises(UserError) as error:
        verify_evidence(copy.run, client_folder, lambda line: None)
    return str(error.value)


def without_a_node(packs):
    return packs.take(np.arange(1, len(packs.nodes)))


def with_a_node_twice(packs):
    return packs.take(np.append(np.arange(len(packs.nodes)), 0))


def of_a_strange_node(packs):
    return replace(packs, nodes=bumped(packs.nodes, 0, 10_000))


@pytest.mark.parametrize(
    ("stem", "edit", "words"),
    [
        ("round-00002", with_a_node_twice, "expected one pack per node, found 2 of node number"),
        ("final", with_a_node_twice, "expected one pack per node, found 2 of node number"),
        ("final", of_a_strange_node, "expected packs of nodes of the client, found one of node"),
    ],
)
def test_packs_of_other_nodes_are_found(copy, stem, edit, words):
    unsealed(copy, stem, edit)
    assert f"{stem}.npz: {words}" in refusal(copy, copy.client)


def test_final_packs_are_of_the_whole_core_of_the_client_s_state(copy):
    unsealed(copy, "final", without_a_node)
    found = refusal(copy, copy.client)
    assert "final.npz: expected packs of the last core, found none of node number" in found
    (copy.client / "runs" / copy.name / "state.npz").unlink()
    verify_evidence(copy.run, copy.client, print)  # nothing says how many there were


def test_packs_of_a_round_are_as_many_as_the_history_counts(copy, dance):
    count = dance.result["history"][1]["counts"]["evidence-packs"]
    unsealed(copy, "round-00002", without_a_node)
    assert f"round 2: expected packs of {count} nodes" in (said := refusal(copy))
    assert f"found {count - 1}" in said
    (copy.evidence / "round-00002.npz").unlink()
    assert "round 2: expected packs of" in refusal(copy)


def test_packs_of_a_client_that_a_round_did_not_count_are_no_fault(copy):
    """It trained, and its answer was lost: its packs are more than the record counts."""
    result = read_result(copy.run)
    row = result["history"][1]
    row["counts"]["evidence-packs"] -= len(copy.packs("round-00002").nodes)
    for row["absent"], fault in (({"1": "silent"}, False), ({}, True)):
        write_result(copy.run, result)
        if fault:
            assert "round 2: expected packs of" in refusal(copy)
        else:
            verify_evidence(copy.run, None, print)


def test_verify_reads_one_client_from_its_own_folder(dance, copy):
    said = []
    shutil.rmtree(copy.partition / "client-0")
    verify_evidence(copy.run, copy.client, said.append)
    assert [line.split(":")[0] for line in said] == ["client 1"] * 3 + ["evidence verified"]
