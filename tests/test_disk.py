"""Files and folders whole or not at all, and one line for what a disk refuses."""

import errno
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dance_flwr.config.paths import check_out
from dance_flwr.disk import (
    append_to,
    atomic_file,
    atomic_folder,
    atomic_path,
    create_folder,
    mapped_array,
    write_json,
    write_npz,
    write_text,
)
from dance_flwr.errors import UserError, disk_of, refusal
from dance_flwr.runs.locks import SERVER, exclusive

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_replaced_may_be_kept(tmp_path, lasting):
    for content, kept in ((b"1", {}), (b"2", {"kept": b"1"}), (b"3", {"kept": b"2"})):
        with atomic_file(tmp_path / "file", keep=tmp_path / "kept", lasting=lasting) as file:
            file.write(content)
        assert content_of(tmp_path) == {"file": content, **kept}


class Killed(BaseException):
    """No `except Exception` sees it, as no handler sees the end of a process."""


def content_of(folder):
    """Relative path -> bytes of every file below a folder; None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt, Killed])
def test_an_exception_in_a_draft_changes_nothing(tmp_path, error):
    (tmp_path / "file").write_bytes(b"old")
    before = content_of(tmp_path)
    with (
        pytest.raises((OSError, KeyboardInterrupt, Killed)),
        atomic_path(tmp_path / "file", keep=tmp_path / "kept") as draft,
    ):
        draft.write_bytes(b"new")
        raise error
    assert content_of(tmp_path) == before
    with (
        pytest.raises((OSError, KeyboardInterrupt, Killed)),
        atomic_folder(tmp_path / "folder") as draft,
    ):
        (draft / "part").write_bytes(b"new")
        raise error
    assert content_of(tmp_path) == before


def test_a_file_that_cannot_be_replaced_leaves_no_draft(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"), atomic_path(tmp_path / "file") as draft:
        draft.write_bytes(b"1")
    assert content_of(tmp_path) == {"file": None}


def test_a_folder_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "parent" / "folder"
    with atomic_folder(path) as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "part").write_bytes(b"1")
        assert not path.exists()
    assert content_of(tmp_path) == {
        "parent": None,
        "parent/folder": None,
        "parent/folder/inner": None,
        "parent/folder/inner/part": b"1",
    }


def test_what_is_written_belongs_to_its_user_alone(tmp_path, umask_0):
    """Also where the umask allows everything, and for files that libraries create in a folder."""
    with atomic_folder(tmp_path / "a" / "folder") as draft:
        (draft / "inner").mkdir()
        np.save(draft / "inner" / "array.npy", np.zeros(1))
    write_text(tmp_path / "b" / "text", "x")
    write_npz(tmp_path / "arrays.npz", {"x": np.zeros(1)})
    with append_to(tmp_path / "lines") as file:
        file.write(b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert set(modes.values()) == {0o600, 0o700} and len(modes) == 8


@pytest.fixture
def umask_0():
    before = os.umask(0)
    yield
    os.umask(before)


def test_two_writers_of_a_file_do_not_share_a_draft(tmp_path):
    path = tmp_path / "file"
    with atomic_path(path) as first, atomic_path(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


def test_a_folder_with_content_is_never_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_bytes(b"old")
    before = content_of(tmp_path)
    with pytest.raises(OSError), atomic_folder(tmp_path / "folder") as draft:
        (draft / "part").write_bytes(b"new")
    assert content_of(tmp_path) == before


WRITERS = {
    "a checkpoint": "atomic_path(folder / 'checkpoint.safetensors', keep=folder / 'before')",
    "a file that nobody writes again": "atomic_file(folder / 'round-7.npz', lasting=True)",
    "a folder": "atomic_folder(folder / 'bundle[1]')",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_next_writer_of_a_folder_removes_what_killed_ones_left(tmp_path, writer):
    """Two at once are killed in the middle; a third one, which lives, is left alone."""
    code = (
        "import sys, time; from pathlib import Path; from dance_flwr.disk import *\n"
        f"folder = Path(sys.argv[1])\nwith {WRITERS[writer]}:\n"
        "    print(flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, tmp_path]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for each in writers:
            each.stdout.readline()
        for each in writers[:2]:
            each.kill()
            each.wait()
        mine = [tmp_path / ".notes.draft", tmp_path / ".round-7.npz.draft-1", tmp_path / "a.draft"]
        for path in mine:
            path.write_text("of a user")
        drafts = {path for path in tmp_path.iterdir() if path not in mine}
        assert len(drafts) >= 3
        write_text(tmp_path / "other", "é")
        left = drafts & {*tmp_path.iterdir()}
        assert len(left) == len(drafts) // 3 and all(path.exists() for path in mine)
    finally:
        for each in writers:
            each.kill()
            each.wait()
            each.stdout.close()


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "sub" / "file.json"
    write_json(path, {"a": [1, "é"]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": [1, "é"]}
    assert path.read_bytes().endswith(b"}\n")
    before = content_of(tmp_path)
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert content_of(tmp_path) == before


def test_a_full_disk_leaves_what_was_there(mounted):
    write_json(mounted / "file.json", {"old": True})
    before = content_of(mounted)
    large = ["x" * 1024] * (8 << 10)
    with pytest.raises(OSError, match="No space"):
        write_json(mounted / "file.json", large)
    with pytest.raises(OSError, match="No space"), atomic_folder(mounted / "folder") as draft:
        (draft / "small").write_bytes(b"1")
        (draft / "large").write_bytes(bytes(8 << 20))
    assert content_of(mounted) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line(tmp_path, number):
    with (
        pytest.raises(UserError, match=r"expected room .* MB free .*; make room") as error,
        disk_of(tmp_path),
    ):
        raise OSError(number, os.strerror(number))
    assert str(tmp_path) in str(error.value) and os.strerror(number) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_name_that_is_too_long_is_one_line(cli):
    for words in (["status"], ["data", "show"], ["run", "--rounds", "1", "--out"]):
        done = cli(*words, "a" * 300)
        assert done.code == 2 and "expected a shorter name" in done.err[-1]


def test_a_disk_without_inodes_is_not_called_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: type("Few", (), {"f_files": 9, "f_favail": 0}))
    with pytest.raises(UserError, match="found no inode free"), disk_of(tmp_path):
        raise OSError(*FULL.args)


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
    prepare = ["partition", *(part for key in keys for part in ("--set", key))]
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


def test_a_path_through_a_file_names_the_file(tmp_path):
    """Each fails without a check of its own, and the command line reports it in one line."""
    (tmp_path / "afile").write_text("mine")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")

    def in_folder(path):
        with atomic_folder(path):
            pass

    writers = [lambda path: write_text(path, "x"), in_folder, lambda path: create_folder(path)]
    for name, end in (("afile", "x"), ("afile", "x/y/z"), ("gone", "x")):
        for write in writers:
            with pytest.raises(NotADirectoryError) as raised:
                write(tmp_path / name / end)
            assert refusal(raised.value) == (
                f"{tmp_path / name}: expected a folder, found a file; choose another path"
            )
    with pytest.raises(PermissionError):
        create_folder(Path("/proc/x"))
    create_folder(tmp_path / "a" / "b")
    create_folder(tmp_path / "a" / "b")
    assert (tmp_path / "afile").read_text() == "mine" and (tmp_path / "a" / "b").is_dir()


def test_a_closed_folder_is_named_before_the_work_and_after_it(mounted):
    import pyarrow as pa
    import pyarrow.parquet as pq

    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    with pytest.raises(UserError, match=rf"^{mounted}: expected .* access .* another --out"):
        check_out(mounted / "new" / "x")
    with pytest.raises(OSError) as raised:
        pq.write_table(pa.table({"a": [1]}), mounted / "p.parquet")
    assert raised.value.filename is None and f"{mounted}/p.parquet" in refusal(raised.value)
    assert "None" not in refusal(raised.value)


def test_a_run_that_does_not_start_moves_no_latest(cli, tiny, tmp_path):
    where = Path(os.environ["DANCE_FLWR_HOME"], "state", "latest-run")
    write_text(where, "/an/earlier/run\n")
    with exclusive(tmp_path, SERVER):  # the folder of another run
        done = cli("run", "--data", tiny, "--clients", "3", "--out", tmp_path)
    assert "expected nobody else at work" in done.err[-1]
    assert where.read_text() == "/an/earlier/run\n"


@pytest.mark.parametrize("array", [np.arange(6, dtype=np.float16).reshape(2, 3), np.zeros((0, 4))])
def test_a_mapped_array_holds_no_descriptor(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    before = sorted(Path("/dev/fd").iterdir())
    mapped = mapped_array(tmp_path / "a.npy")
    assert sorted(Path("/dev/fd").iterdir()) == before and not mapped.flags.writeable
    assert mapped.dtype == array.dtype and np.array_equal(mapped, array)


def test_a_limit_of_open_files_is_named_and_no_file_is_blamed(tmp_path):
    from dance_flwr.data.graphs.tables import readable

    limit = str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    many = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with pytest.raises(UserError, match=limit), disk_of(tmp_path), readable(tmp_path / "a.parquet"):
        raise many
