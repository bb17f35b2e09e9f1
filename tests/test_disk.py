"""Files whole or not at all, and one line for what a disk refuses: a writer, a node, a command."""

import errno
import os

import numpy as np
import pytest

from dance_flwr.disk import atomic_file, disk_of
from dance_flwr.errors import UserError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with (
        pytest.raises(OSError, match="No space"),
        atomic_file(path, keep=tmp_path / "kept") as file,
    ):
        file.write(b"ne")
        raise FULL
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_replaced_may_be_kept(tmp_path, lasting):
    for content in (b"1", b"2", b"3"):
        with atomic_file(tmp_path / "file", keep=tmp_path / "kept", lasting=lasting) as file:
            file.write(content)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "file": b"3",
        "kept": b"2",
    }


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line(tmp_path, number):
    with (
        pytest.raises(UserError, match=r"expected room .* MB free .*; make room") as error,
        disk_of(tmp_path),
    ):
        raise OSError(number, os.strerror(number))
    assert str(tmp_path) in str(error.value) and os.strerror(number) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_disk_without_inodes_is_not_called_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: type("Few", (), {"f_files": 9, "f_favail": 0}))
    with pytest.raises(UserError, match="found no inode free"), disk_of(tmp_path):
        raise FULL


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_closed_folder_is_one_line(tmp_path, number):
    path = tmp_path / "runs" / "r"
    with (
        pytest.raises(UserError, match=rf"^{path}: expected .*{os.strerror(number)}.*chown"),
        disk_of(tmp_path),
    ):
        raise OSError(number, os.strerror(number), str(path))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "broken"),
        OSError(errno.EACCES, "closed", "/elsewhere/file"),
        OSError("no number"),
    ],
)
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(OSError) as raised, disk_of(tmp_path):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("kilobytes", [64, 256])
def test_a_command_on_a_full_disk_is_one_line_and_goes_on_later(
    cli, tiny, mounted, monkeypatch, kilobytes
):
    monkeypatch.setenv("DANCE_FLWR_HOME", str(mounted))
    filler = mounted / "filler"
    filler.write_bytes(bytes((4 << 20) - (kilobytes << 10)))
    keys = [f"data={tiny}", "clients=3"]
    prepare = ["prepare", *(part for key in keys for part in ("--set", key))]
    done = cli(*prepare)
    assert done.code == 2
    assert (
        done.err[-1].startswith("error: ") and "expected room to write, found none" in done.err[-1]
    )
    assert "DANCE_FLWR_HOME" in done.err[-1] and not any("Traceback" in line for line in done.err)
    filler.unlink()
    assert cli(*prepare).code == 0


def test_what_numpy_says_of_a_full_disk_is_understood(mounted):
    with pytest.raises(UserError, match="expected room"), disk_of(mounted):
        np.save(mounted / "large", np.zeros(1 << 20))


def test_a_folder_of_somebody_else_is_one_line(cli, tiny, monkeypatch):
    monkeypatch.setattr("dance_flwr.cli.commands.read_config", closed)
    done = cli("prepare", "--set", f"data={tiny}")
    assert done.code == 2 and done.err == [
        "error: /srv/x: expected that this user may read and write there, found 'Permission denied'; choose another "
        "folder, or give it to this user (chown)"
    ]


def closed(*_):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/x")
