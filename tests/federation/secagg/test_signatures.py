"""Statements of nodes, and the two halves of a shared secret."""

import errno
import os

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from dance_flwr.deploy import certificates
from dance_flwr.deploy.certificates import make_key
from dance_flwr.errors import UserError
from dance_flwr.federation.secagg.masks import MASKS, SHARES, derivation, shared_key
from dance_flwr.federation.secagg.signatures import (
    is_signed,
    load_key,
    read_peer_keys,
    sign,
    statement,
)


def test_a_signature_is_worth_nothing_for_another_key_purpose_or_fact(tmp_path):
    own, other = (load_key(make_key(tmp_path / name).with_suffix("")) for name in "ab")
    text = statement("hello", run=1, node=2)
    signature = sign(own, text)
    assert is_signed(text, signature, own.public_key())
    assert not is_signed(text, signature, other.public_key())
    for wrong in (statement("keys", run=1, node=2), statement("hello", run=1, node=3)):
        assert not is_signed(wrong, signature, own.public_key())
    assert not is_signed(text, b"", own.public_key())


def test_a_file_of_peer_keys_has_a_public_key_of_its_own_for_every_client(tmp_path):
    public = [make_key(tmp_path / f"{client}.key") for client in range(3)]
    lines = [path.read_text() for path in public]

    def found(*lines):
        text = "# a comment\n" + "".join(f"{k} {line}" for k, line in enumerate(lines))
        (tmp_path / "peer-keys").write_text(text)
        return read_peer_keys(tmp_path / "peer-keys")

    keys = [load_key(path.with_suffix("")).public_key() for path in public]
    assert found(*lines) == dict(enumerate(keys))
    with pytest.raises(UserError, match=r"the same key for clients \[0, 2\]"):
        found(*lines[:2], lines[0])
    with pytest.raises(UserError, match=r"expected a public ECDSA key"):
        found((tmp_path / "0.key").read_text())
    with pytest.raises(UserError, match="a key that is overwritten is lost"):
        make_key(tmp_path / "0.key")


@pytest.mark.parametrize("way", ["full", "public", "link"])
def test_a_pair_of_keys_comes_whole_or_not_at_all(tmp_path, monkeypatch, way):
    """A disk that is full after the private key; the other half is there; a link to nowhere."""
    key, public = tmp_path / "site.key", tmp_path / "site.key.pub"
    if way == "full":
        real = certificates.atomic_file

        def full(path, **options):
            if path == public:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return real(path, **options)

        monkeypatch.setattr(certificates, "atomic_file", full)
    elif way == "public":
        public.write_text("mine")
    else:
        key.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError if way == "full" else UserError):
        make_key(key)
    assert sorted(tmp_path.iterdir()) == before and key.is_symlink() == (way == "link")
    assert way != "public" or public.read_text() == "mine"


def test_two_clients_share_a_secret_for_one_purpose_in_one_run():
    one, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    with derivation(1, MASKS):
        secret = shared_key(one, other.public_key())
        assert secret == shared_key(other, one.public_key()) and len(secret) == 44
    for run, purpose, request in ((1, SHARES, ""), (2, MASKS, ""), (1, MASKS, "another request")):
        with derivation(run, purpose, request):
            assert shared_key(one, other.public_key()) != secret
