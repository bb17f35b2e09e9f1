"""A client that forges its evidence after a run, and makes every digest in its folder fit."""

import re
import shutil
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dance_flwr.dance.state import RunFolder
from dance_flwr.data.card import read_card
from dance_flwr.data.digests import check_files, data_commitment, write_card
from dance_flwr.errors import UserError
from dance_flwr.evidence.pack import Packs
from dance_flwr.evidence.seal import seal
from dance_flwr.federation.wire import keys, messages
from dance_flwr.runs.evidence import verify_evidence
from dance_flwr.runs.result import read_result, write_result


class Forger:
    """The operator of client 1: rewrites what lies in its folder, not the record at the server."""

    def __init__(self, finished, folder):
        shutil.copytree(finished.folder, folder / "run")
        shutil.copytree(finished.partition, folder / "partition")
        result = finished.result | {"partition_dir": str(folder / "partition")}
        write_result(folder / "run", result)
        self.run, self.client = folder / "run", folder / "partition" / "client-1"
        self.store = RunFolder(self.client, finished.result["run"])

    def array(self, name, edit):
        path = self.client / name
        array = np.load(path)
        edit(array)
        np.save(path, array)

    def cover(self):
        """Write card and seal anew, as they would be for what is there now."""
        write_card(self.client, read_card(self.client))
        seal(self.store, read_card(self.client).salt)

    def verify(self, **options):
        said = []
        verify_evidence(self.run, None, said.append, **options)
        return said

    def refusal(self, **options):
        with pytest.raises(UserError) as error:
            self.verify(**options)
        assert "\n" not in str(error.value)
        return str(error.value)


@pytest.fixture
def forger(dance, tmp_path):
    return Forger(dance, tmp_path)


def weights_of_an_old_pack(forger):
    path = forger.store.round_path(1)
    packs = Packs.load(path)
    weights = packs.chunk_weights.copy()
    weights[:2] = weights[:2][::-1]
    replace(packs, chunk_weights=weights).save(path)


def a_text_and_its_digests(forger):
    path, digests = forger.client / "nodes.parquet", forger.client / "arrays" / "chunk_sha256.npy"
    table = pq.read_table(path)
    columns, spans = table.to_pydict(), np.load(forger.client / "text" / "chunk_spans.npy")
    text, (start, end) = columns["text"][0], spans[0]
    columns["text"][0] = text[:start] + "x" * (end - start) + text[end:]
    pq.write_table(pa.table(columns, schema=table.schema), path)
    stored, digest = np.load(digests), sha256(b"x" * (end - start)).digest()
    old, stored[0] = stored[0].tobytes(), np.frombuffer(digest, np.uint8)
    np.save(digests, stored)
    for pack in forger.store.all_packs():
        packs = Packs.load(pack)
        spans = packs.chunk_sha256.copy()
        spans[[row.tobytes() == old for row in spans]] = stored[0]
        replace(packs, chunk_sha256=spans).save(pack)


def flipped_embeddings(forger):
    forger.array("text/chunk_embeddings.npy", lambda rows: np.negative(rows, out=rows))


def a_rewired_edge(forger):
    def edit(indices):
        indices[0] = (indices[0] + 7) % read_card(forger.client).num_nodes

    forger.array("arrays/indices.npy", edit)


def a_training_label(forger):
    forger.array("arrays/labels.npy", lambda labels: np.copyto(labels, (labels + 1) % 3))


FORGERIES = [
    weights_of_an_old_pack,
    a_text_and_its_digests,
    flipped_embeddings,
    a_rewired_edge,
    a_training_label,
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_what_a_client_forges_contradicts_the_record_of_the_run(forger, forge):
    forge(forger)
    forger.cover()
    assert "record" in forger.refusal()


@pytest.mark.parametrize("forge", FORGERIES[1:])
def test_what_is_altered_without_the_card_is_named(forger, forge):
    forge(forger)
    assert "client.json describes, found another" in forger.refusal()


def test_an_old_pack_is_named(forger):
    weights_of_an_old_pack(forger)
    assert "round-00001.npz: expected what the record of the run sealed" in forger.refusal()


@pytest.mark.parametrize("change", ["removed", "added"])
def test_packs_that_are_missing_or_new_are_named(forger, change):
    path = forger.store.round_path(1)
    if change == "removed":
        path.unlink()
    else:
        shutil.copy(path, forger.store.round_path(99))
    name = "round-00001.npz" if change == "removed" else "round-00099.npz"
    assert name in forger.refusal()


def test_embeddings_that_were_wrong_before_the_run_are_found(run, tmp_path):
    """The record fixes them as they are: only encoding the texts again tells."""
    from dance_flwr.data.prepare import partition_folder

    keys = {"rounds": 1, "seed": 77}
    finished = run(**keys)
    assert partition_folder(finished.config) == finished.partition
    folder = finished.partition / "client-1"
    rows = np.load(folder / "text" / "chunk_embeddings.npy")
    np.save(folder / "text" / "chunk_embeddings.npy", np.roll(rows, 1, axis=0))
    write_card(folder, read_card(folder))
    from dance_flwr.federation.client.client import close_clients

    close_clients()
    forger = Forger(run(**keys), tmp_path)
    assert "expected the embedding of encoder" in forger.refusal(encode=1000)
    assert forger.verify(encode=0)[-1] == "evidence verified"


def test_verify_says_how_far_it_went(forger):
    said = "\n".join(forger.verify(encode=5))
    cosine = re.findall(r"5 of [\d,]+ text passages encoded again, ([\d.]+) alike or more", said)
    assert len(cosine) == 3 and all(0.99 <= float(each) <= 1 for each in cosine)
    assert "of models that a run does not keep: as sealed at its end" in said


def test_a_client_that_never_sealed_has_packs_that_nobody_can_vouch_for(forger):
    result = read_result(forger.run)
    del result["evidence_sha256"]["1"]
    write_result(forger.run, result)
    weights_of_an_old_pack(forger)
    assert any("not sealed, so nobody can vouch for it" in line for line in forger.verify())


def test_a_client_that_took_no_part_is_not_called_verified(forger):
    result = read_result(forger.run)
    del result["data_sha256"]["1"]
    write_result(forger.run, result)
    said = forger.verify()
    assert "client 1: took no part in the run, whose record holds no hash of its data" in said
    assert said[-1] == "evidence of 2 of 3 clients verified"


def test_the_hash_of_the_data_tells_nothing_to_who_knows_all_but_the_salt(dance, tmp_path):
    """Two cards of the same data have different hashes, and no message holds the salt."""
    shutil.copytree(dance.partition / "client-0", tmp_path / "copy")
    first = read_card(tmp_path / "copy")
    write_card(tmp_path / "copy", first)
    again = check_files(tmp_path / "copy")
    assert again.files == first.files
    assert data_commitment(again) != data_commitment(first)
    assert dance.result[keys.DATA_SHA256]["0"] == data_commitment(first)
    for message in dance.messages:
        assert (
            first.salt not in repr(messages.config_of(message)) if message.has_content() else True
        )


def test_what_follows_from_the_data_is_computed_again(run, tmp_path, monkeypatch):
    """A forged choice of reading, or a forged array beside the data, persuades nobody."""
    from dance_flwr.client_data import inputs as derived

    monkeypatch.setattr(derived, "RESIDENT_BYTES", 0)
    forger = Forger(run(rounds=1, seed=78), tmp_path)
    arrays = list((forger.client / "derived").glob("*.npy"))
    assert arrays, "nothing was kept"
    for path in arrays:
        rows = np.load(path)
        np.save(path, np.roll(rows, 1, axis=0))
    assert forger.verify()[-1] == "evidence verified"
