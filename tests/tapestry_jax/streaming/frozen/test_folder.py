"""The folder of a job: the newest state, the one before it, one job at a time, and disks that are full."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from combinators.errors import FormatError
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import Frozen, Position, check_unchanged, load, locked, save
from tapestry_jax.streaming.frozen.folder import clear, has_damage
from tests.forked import Ran, run
from tests.nobody import as_nobody, read_only


def frozen(cells: int, **parts: dict[str, str]) -> Frozen:
    said = {"job": {"graph": "g"}, "sources": {"x": "1"}, "sinks": {"y": "y.npy"}, **parts}
    return Frozen(**said, position=Position(0, cells), arrays={"sum": np.full(3, cells)})


def test_the_newest_state_is_read_and_the_one_before_it_kept(tmp_path: Path):
    folder = tmp_path / "runs" / "one"
    assert load(folder) is None
    for cells in (1, 2, 3):
        assert save(folder, frozen(cells)) == (folder / f"state-{cells:08d}").stat().st_size
        found = load(folder)
        assert found is not None and found.position.cells == cells and found.arrays["sum"].tolist() == [cells] * 3
    assert sorted(path.name for path in folder.iterdir()) == ["state-00000002", "state-00000003"]
    clear(folder)
    assert load(folder) is None


def test_a_damaged_state_is_told_and_the_one_before_it_read(tmp_path: Path):
    for cells in (1, 2):
        save(tmp_path, frozen(cells))
    newest = tmp_path / "state-00000002"
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.warns(UserWarning, match=r"state-00000002 is passed over, the state before it is read") as told:
        found = load(tmp_path)
    assert found is not None and found.position.cells == 1 and "truncated?" in str(told[0].message)
    save(tmp_path, frozen(3))
    assert (load(tmp_path) or frozen(0)).position.cells == 3


def test_where_no_state_is_whole_the_newest_is_told(tmp_path: Path):
    save(tmp_path, frozen(1))
    (tmp_path / "state-00000001").write_bytes(b"")
    (tmp_path / "state-00000002").mkdir()
    with pytest.raises(FormatError, match=r"state-00000002 is no file"):
        load(tmp_path)


def test_what_has_no_end_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "state-00000001")
    (tmp_path / "state-00000002").symlink_to("/dev/zero")
    with (tmp_path / "state-00000003").open("wb") as file:
        file.truncate(2**40)
    for name in ("00000003 is too large to be read", "00000002 is no file", "00000001 is no file"):
        with pytest.raises(FormatError, match=name):
            load(tmp_path)
        (tmp_path / f"state-{name[:8]}").unlink()
    assert load(tmp_path) is None


def test_another_version_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, frozen(1))
    with monkeypatch.context() as later:
        later.setattr("tapestry_jax.streaming.frozen.encoded._VERSION", 2)
        save(tmp_path, frozen(2))
    with pytest.raises(FormatError, match="another version"):
        load(tmp_path)


def test_one_job_has_a_folder_and_a_killed_one_frees_it(tmp_path: Path):
    other = tmp_path / "other"
    with locked(tmp_path / "run") as folder:
        with pytest.raises(StreamError) as caught, locked(folder):
            pass
        assert f"held by process {os.getpid()} on " in str(caught.value)
        done = in_a_process(f"""
try:
    with locked({str(folder)!r}):
        pass
except Exception as error:
    print(error, flush=True)
with locked({str(other)!r}) as other:
    (other / ".partial-00000000-state-00000001").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
""")
    assert "belongs to a job that is running.\n" in done.stdout and done.returncode == -signal.SIGKILL
    assert len([*other.glob(".partial-*")]) == 1
    for free in (folder, other):
        with locked(free):
            assert [path.name for path in free.iterdir()] == ["lock"]


def test_an_error_under_the_lock_is_its_own_and_frees_the_folder(tmp_path: Path):
    with pytest.raises(BlockingIOError, match="mine"), locked(tmp_path):
        raise BlockingIOError("mine")
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("held", ["# a lock of a package manager\n", " process 1 on here\n", "x"])
def test_a_lock_of_something_else_is_left_as_it_is(held: str, tmp_path: Path):
    (tmp_path / "lock").write_text(held)
    with pytest.raises(StreamError, match="the file `lock` there was written by something else"), locked(tmp_path):
        pass
    assert (tmp_path / "lock").read_text() == held


def test_a_lock_that_a_job_has_left_is_taken(tmp_path: Path):
    whole = "process 12 on somewhere\n"
    # A disk that was full has kept a part of it.
    for held in (whole[:length] for length in range(len(whole) + 1)):
        (tmp_path / "lock").write_text(held)
        with locked(tmp_path):
            assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")


def test_a_folder_whose_name_has_a_nul_is_told():
    with pytest.raises(StreamError, match="cannot hold a job"), locked("a\0b"):
        pass


def test_a_full_disk_under_the_lock_is_told_and_frees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StreamError, match=r"cannot hold a job.\n  OSError: .* No space left"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass


def in_a_process(text: str) -> Ran:
    head = "import os, signal\nfrom tapestry_jax.streaming.frozen import locked\n"
    return run(head + text)


def test_folders_that_cannot_be_made_are_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamError, match=r"cannot hold a job.\n  NotADirectoryError"), locked(tmp_path / "file" / "a"):
        pass
    with pytest.raises(StreamError, match=r"cannot be read.\n  NotADirectoryError"):
        load(tmp_path / "file")


def test_a_full_disk_leaves_the_state_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, frozen(1))
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(
        StreamError, match=r"cannot be written to .*\n  OSError: .*No space left on device\n  what was wr"
    ):
        save(tmp_path, frozen(2))
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["state-00000001"]
    assert (load(tmp_path) or frozen(0)).position.cells == 1


def test_all_that_differs_is_told_at_once(tmp_path: Path):
    before = frozen(1)
    check_unchanged("run", before, frozen(2))
    now = frozen(1, job={"graph": "h", "plan": "p"}, sources={"x": "1"}, sinks={})
    with pytest.raises(StreamError) as caught:
        check_unchanged("run", before, now)
    assert str(caught.value) == (
        "the job in run is another one than this.\n"
        "  graph: was g, is h\n"
        "  plan: was not there, and is p now\n"
        "  sink y: was y.npy, and is not there now\n"
        "  Give it what it began with, or name another folder to begin anew."
    )


def test_checksums_and_times_are_told_by_what_they_stand_for() -> None:
    before = frozen(
        1, job={"graph": "0a" * 32}, sources={"x": "float32(8, 3)128:420,17,9", "w": "int8(2,)0:1"}, sinks={}
    )
    sources = {"x": "float32(8, 3)128:420,18,9", "w": "int8(3,)0:1"}
    with pytest.raises(StreamError) as caught:
        check_unchanged("run", before, frozen(1, job={"graph": "0b" * 32}, sources=sources, sinks={}))
    assert str(caught.value) == (
        "the job in run is another one than this.\n"
        "  graph: was another program\n"
        "  source w: was int8(2,), is int8(3,)\n"
        "  source x: was written since, or is another file of the same type\n"
        "  Give it what it began with, or name another folder to begin anew."
    )


def test_a_state_is_brought_to_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr("os.fsync", lambda handle: (done.append("sync"), sync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda path, to: (done.append("rename"), rename(path, to))[1])
    save(tmp_path, frozen(1))
    assert done == ["sync", "rename", "sync"]


def test_a_state_that_may_not_be_read_may_be_whole():
    with as_nobody() as folder:
        save(folder, frozen(1))
        save(folder, frozen(2))
        (folder / "state-00000002").chmod(0)
        for ask in (load, has_damage):
            with pytest.raises(StreamError, match=r"state-00000002 cannot be read\..*\n.*\n  Let this process read it"):
                ask(folder)
        read_only(folder)
        with pytest.raises(
            StreamError, match=r"cannot be written to .*\n.*\n.*\n  Let this process write there, and run"
        ):
            save(folder, frozen(3))
